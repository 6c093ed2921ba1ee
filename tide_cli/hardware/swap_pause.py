"""How long a swap holds the engine's steps up: an estimate.

A swap is read from the disk, checked and put into pinned host memory beforehand, while requests run
(engine/plugin/swap.py). What the steps wait for is the copy to the serving GPUs, each over a PCI Express link of its
own: its share of the draft's weights, and the vocabulary map whole. The wait for the step that runs comes on top.

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
_MAP_ENTRY = 8  # bytes: int64


@dataclass(frozen=True)
class SwapPause:
    """copied_bytes: to each serving GPU; bytes_per_second: of its link, after the allowance; basis: in words."""

    copied_bytes: int
    bytes_per_second: float
    basis: str

    @property
    def milliseconds(self) -> float:
        return 1000 * self.copied_bytes / self.bytes_per_second


def swap_pause(draft: DraftShape, wishes: Wishes, serve: Sequence[Gpu]) -> SwapPause:
    """Of a draft that these GPUs, at least one, serve together."""
    name = min((_link(gpu) for gpu in serve), key=_LINKS.__getitem__)
    weights = -(-draft.parameters * wishes.draft_bytes // len(serve))
    basis = f"{_USED:.0%} of {name}, {_LINKS[name] / 1e9:.1f} GB/s"
    return SwapPause(weights + _MAP_ENTRY * draft.vocab_size, _USED * _LINKS[name], basis)


def _link(gpu: Gpu) -> str:
    """By the data sheets, NVIDIA's have PCI Express 5.0 from compute capability 9.0 on (H100), AMD's from gfx942 on
    (MI300X). The slot may be a slower one: the inventory does not tell."""
    first = (9, 4) if gpu.vendor == "amd" else (9, 0)
    return "PCI Express 5.0 x16" if gpu.capability[:2] >= first else "PCI Express 4.0 x16"
