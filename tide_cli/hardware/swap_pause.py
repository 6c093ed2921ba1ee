"""How long a swap holds the engine's steps up: an estimate.

A swap is read from the disk, checked and put into pinned host memory beforehand, while requests run
(engine/plugin/swap.py). What the steps wait for is the copy to the serving GPUs, each over a PCI Express link of its
own: its share of the draft's weights, and the vocabulary map whole. The wait for the step that runs comes on top.

SGLang does not divide `fc` and the norms, nor a head of keys and values where there are fewer than GPUs. It divides the
attention's output and the MLP's down projection by their columns: such a slice does not lie together in host memory,
and PyTorch gathers it into memory that is not pinned before it is copied.

On a CPU the weights are copied and packed anew for oneDNN, which depends on the cores and is not estimated; `tide bench
swap` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tide_cli.hardware.inventory import Gpu
from tide_cli.hardware.wishes import Wishes
from tide_cli.targets.shape import DraftShape

# Bytes/s one way over 16 lanes: 16 and 32 GT/s a lane, 128 of 130 bits are data (PCI-SIG, PCI Express 4.0 and 5.0).
_LINKS = {"PCI Express 4.0 x16": 16e9 * 16 * 128 / 130 / 8, "PCI Express 5.0 x16": 32e9 * 16 * 128 / 130 / 8}
_USED = 0.8  # allowance: what headers and requests leave of the link for a large copy from pinned memory
_USED_PAGEABLE = 0.2  # the same of what is gathered first, and copied once more by the driver: a guess, not measured
_MAP_ENTRY = 8  # bytes: int64


@dataclass(frozen=True)
class SwapPause:
    """copied_bytes: to each serving GPU; bytes_per_second: of its link, after the allowance; basis: in words;
    pageable_bytes: those of copied_bytes that are gathered first, and go at pageable_bytes_per_second."""

    copied_bytes: int
    bytes_per_second: float
    basis: str
    pageable_bytes: int
    pageable_bytes_per_second: float

    @property
    def milliseconds(self) -> float:
        pinned = (self.copied_bytes - self.pageable_bytes) / self.bytes_per_second
        return 1000 * (pinned + self.pageable_bytes / self.pageable_bytes_per_second)


def swap_pause(draft: DraftShape, wishes: Wishes, serve: Sequence[Gpu]) -> SwapPause:
    """Of a draft that these GPUs, at least one, serve together."""
    name = min((_link(gpu) for gpu in serve), key=_LINKS.__getitem__)
    weights, gathered = _weights_of_one(draft, len(serve))
    link, basis = _LINKS[name], f"{_USED:.0%} of {name}, {_LINKS[name] / 1e9:.1f} GB/s"
    copied = weights * wishes.draft_bytes + _MAP_ENTRY * draft.vocab_size
    return SwapPause(copied, _USED * link, basis, gathered * wishes.draft_bytes, _USED_PAGEABLE * link)


def _weights_of_one(draft: DraftShape, ranks: int) -> tuple[int, int]:
    """(weights that one of the ranks holds, those of them that are slices by columns). As in DraftShape.parameters."""
    hidden, head = draft.hidden_size, draft.head_dim
    sizes = (draft.heads, draft.kv_heads, draft.intermediate_size, draft.vocab_size)
    heads, kv_heads, inner, vocabulary = (-(-size // ranks) for size in sizes)
    undivided = 3 * hidden * hidden + 4 * hidden
    by_rows = ((heads + 2 * kv_heads) * head * 2 + 2 * inner + vocabulary) * hidden
    by_columns = (heads * head + inner) * hidden
    return undivided + by_rows + by_columns, by_columns if ranks > 1 else 0


def _link(gpu: Gpu) -> str:
    """By the data sheets, NVIDIA's have PCI Express 5.0 from compute capability 9.0 on (H100), AMD's from gfx942 on
    (MI300X). The slot may be a slower one: the inventory does not tell."""
    first = (9, 4) if gpu.vendor == "amd" else (9, 0)
    return "PCI Express 5.0 x16" if gpu.capability[:2] >= first else "PCI Express 4.0 x16"
