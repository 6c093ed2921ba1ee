"""The mask that CUDA_VISIBLE_DEVICES lays over a machine's GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from tide_cli.hardware.inventory import Gpu


def visible(gpus: Sequence[Gpu], mask: str | None) -> tuple[Gpu, ...]:
    """Only the devices of a mask, in its order; None lets all through. Like CUDA, stop at the first unknown entry.

    Entries are indices or the beginnings of UUIDs. The index of a GPU that is cut into slices means its first slice.
    Indices are those of PCI order, which TIDE gives its own children too (CUDA_DEVICE_ORDER).
    """
    if mask is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in mask.split(","):
        found = _named(gpus, entry.strip())
        if found is None:
            break
        chosen.append(found)
    return tuple(dict.fromkeys(chosen))


def _named(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.isdecimal():
        number = int(entry)
        return next((gpu for gpu in gpus if number == (gpu.parent if gpu.mig else gpu.index)), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    matching = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None
