"""What is said where a plan cannot be made: which wish, or how much memory where."""

from __future__ import annotations

from collections.abc import Sequence

from tide_cli.errors import UsageError
from tide_cli.hardware.gpus import named_gpus, usable
from tide_cli.hardware.inventory import Inventory
from tide_cli.hardware.layouts import Layout
from tide_cli.hardware.memory import GIB, MIB, PREFILL_STEPS, Part, serving_parts, total, whole_pages
from tide_cli.hardware.wishes import Wishes
from tide_cli.targets.shape import DraftShape, TargetShape

_NO_GPU = "leave it out to use the CPU; `tide gpus` shows what is here"


class DoesNotFit(UsageError):
    """parts: what is needed in one place; free: bytes that are there; note: what else explains them."""

    def __init__(self, target: str, where: str, parts: Sequence[Part], free: int, note: str | None = None) -> None:
        largest = sorted(parts, key=lambda part: -part.size)[:4]
        sizes = [(part.name, round(10 * part.size / GIB)) for part in largest]
        if (rest := round(10 * total(parts) / GIB) - sum(size for _, size in sizes)) > 0 and len(parts) > len(largest):
            sizes.append(("others", rest))
        words = ", ".join(f"{name} {tenths / 10:.1f}" for name, tenths in sizes)
        lack = total(parts) - free
        missing = f"{lack / GIB:.1f} GiB" if lack >= GIB // 10 else f"{-(-lack // MIB)} MiB"
        super().__init__(
            f"{target} does not fit: {missing} are missing {where}",
            why=f"needed are {total(parts) / GIB:.1f} GiB ({words}), free are {free / GIB:.1f}"
            + (f"; {note}" if note else ""),
            remedy="more memory, or fewer --max-running-requests",
        )


def refuse_gpu_wishes(wishes: Wishes) -> None:
    """Raises UsageError for what asks for GPUs where none is to be used."""
    if wishes.serve_gpus is not None:
        raise UsageError(f"--serve-gpus {wishes.serve_gpus}: there is no GPU to use here", remedy=_NO_GPU)
    if wishes.train_gpus is not None and named_gpus("--train-gpus", wishes.train_gpus, ()):
        raise UsageError(f"--train-gpus {wishes.train_gpus}: there is no GPU to use here", remedy=_NO_GPU)
    if wishes.tp not in (None, 1):
        raise UsageError(f"--tp {wishes.tp} needs {wishes.tp} GPUs", why="there is none to use here", remedy=_NO_GPU)


def too_small(
    inventory: Inventory,
    possible: Sequence[Layout],
    shape: TargetShape,
    draft: DraftShape | None,
    wishes: Wishes,
    target: str,
) -> DoesNotFit:
    """What is missing in the layout that comes nearest."""
    tokens, step = whole_pages(wishes.least_tokens(shape.context_length), up=True), PREFILL_STEPS[-1]
    nearest: tuple[int, str, tuple[Part, ...], int] | None = None
    for layout in possible:
        parts = serving_parts(shape, draft, wishes, tp=len(layout.serve), prefill_tokens=step, tokens=tokens)
        tightest = min(layout.serve, key=usable)
        training = layout.training_parts(shape, draft, wishes)
        there, free = f"on GPU {tightest.index}", usable(tightest)
        if layout.trainer == "shared":
            parts += training
        elif layout.trainer != "off" and total(parts) <= free:  # the engine fits, the trainer does not
            there, free = "in main memory", inventory.memory_free
            if layout.candidates:  # of each set the fullest GPU counts
                fullest = [min(gpus, key=usable) for gpus in layout.candidates]
                there, free = f"on GPU {fullest[0].index}", max(map(usable, fullest))
            parts = training
        missing = total(parts) - free
        if missing > 0 and (nearest is None or missing < nearest[0]):
            nearest = missing, there, parts, free
    assert nearest is not None  # this function is called because nothing fits
    _, there, parts, free = nearest
    return DoesNotFit(target, there, parts, free)
