"""A draft's tensors: reading them, and refusing those an engine could not serve.

Names as SGLang's LlamaForCausalLMEagle3 loads them: `fc.weight`, `midlayer.*`, `norm.weight`, `lm_head.weight`,
`d2t` [draft vocabulary] int64 (target id minus draft id) and `t2d` [vocabulary] bool.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tide_cli.drafts.manifest import WEIGHTS_FILE, damaged
from tide_cli.errors import TideError, reason
from tide_cli.regular_files import check_regular

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # dtypes of d2t
TensorKind = tuple[tuple[int, ...], torch.dtype]  # shape and dtype

# the draft's embedding is the target's own tensor in the engine, and must never be written
EMBEDDING_NAMES = frozenset({"embed_tokens.weight", "model.embed_tokens.weight"})


def read_draft(folder: Path) -> dict[str, Tensor]:
    """The tensors of a draft folder on the CPU, without the embedding. TideError when the file cannot be read."""
    path = folder / WEIGHTS_FILE
    try:
        check_regular(path)
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name not in EMBEDDING_NAMES]  # noqa: SIM118, the handle is no dict
            return {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise damaged(path, reason(error)) from None
    except SafetensorError:
        raise damaged(path, "it does not begin as a safetensors file does") from None


def draft_kinds(tensors: Mapping[str, Tensor]) -> dict[str, TensorKind]:
    """Shape and dtype of each tensor: what `check_draft` expects of another draft of the same make."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def check_draft(tensors: Mapping[str, Tensor], expected: Mapping[str, TensorKind]) -> None:
    """Refuses a draft that has not exactly the expected tensors, or has a value that is not finite.

    TideError naming the first wrong tensor, in the order of the names: missing, unknown, shape, dtype, NaN or infinity.
    """
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise _unfit(name, "it is missing")
        if name not in expected:
            raise _unfit(name, "the engine does not know it")
        tensor, (shape, dtype) = tensors[name], expected[name]
        if tuple(tensor.shape) != tuple(shape):
            raise _unfit(name, f"its shape is {list(tensor.shape)}, not {list(shape)}")
        if tensor.dtype != dtype:
            raise _unfit(name, f"its dtype is {tensor.dtype}, not {dtype}")
        if dtype.is_floating_point and tensor.numel() and not _is_finite(tensor):
            raise _unfit(name, "it has values that are not finite")


def _is_finite(tensor: Tensor) -> bool:
    # Least and greatest pass NaN on. Asking each value takes thirty times as long, and the engine waits for it.
    return bool(torch.isfinite(torch.stack(tensor.aminmax())).all())


def vocabulary_ids(d2t: Tensor) -> Tensor:
    """The target's ids of a draft's tokens [D] int64, from d2t [D]: how far each lies above the draft's own."""
    return d2t.long() + torch.arange(len(d2t), device=d2t.device)


def check_vocabulary_map(d2t: Tensor, t2d: Tensor) -> None:
    """Refuses a map whose ids do not ascend below len(t2d), or of which t2d [V] does not mark every one. TideError."""
    check_vocabulary_ids(d2t, len(t2d))
    if not torch.equal(t2d.bool().nonzero().flatten(), vocabulary_ids(d2t)):
        raise _wrong_map("t2d must mark the tokens that d2t maps to, and no others")


def check_vocabulary_ids(d2t: Tensor, vocab_size: int) -> None:
    """Refuses a map whose ids do not ascend below the target's `vocab_size`. TideError."""
    if not d2t.is_floating_point():
        ids = vocabulary_ids(d2t)
        if ids[0] >= 0 and ids[-1] < vocab_size and bool((ids.diff() > 0).all()):
            return
    raise _wrong_map(f"d2t must map its {len(d2t)} tokens to ascending ids below {vocab_size}")


def _wrong_map(why: str) -> TideError:
    return TideError("its vocabulary map is wrong", why=why, remedy="serve another version")


def vocab_map_hash(d2t: Tensor) -> str:
    """sha256 in hex of `d2t` as int64, little-endian."""
    values = d2t.detach().to("cpu", torch.int64).contiguous().numpy().astype("<i8", copy=False)
    return hashlib.sha256(values.tobytes()).hexdigest()


def _unfit(name: str, why: str) -> TideError:
    return TideError(f"the draft's tensor {name} does not fit", why=why, remedy="serve another version")


def relative_changes(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float | None]:
    """Name of each tensor to ‖after - before‖ / ‖before‖, in the order of the names.

    None where one of them lacks it, or has it in another shape, or where only `before` is nothing but zeros.
    """
    changes: dict[str, float | None] = {}
    for name in sorted(before.keys() | after.keys()):
        changes[name] = None
        if name in before and name in after and before[name].shape == after[name].shape:
            old, new = before[name].double(), after[name].double()
            change, norm = float((new - old).norm()), float(old.norm())
            changes[name] = change / norm if norm else 0.0 if change == 0 else None
    return changes
