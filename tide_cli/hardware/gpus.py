"""Which GPUs can do what together: named by the user, equal to each other, divisors of a target's heads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tide_cli.errors import UsageError
from tide_cli.hardware.cores import parse_cores
from tide_cli.hardware.inventory import FAST_LINKS, Gpu, Inventory
from tide_cli.targets.shape import DraftShape, TargetShape

_UUIDS = ("GPU-", "MIG-")
CPU = "cpu"  # in the place of a list of GPUs: none of them
# A model in smaller shares than this waits for the other GPUs longer than it computes.
_LEAST_SHARE = 2**30
_MOST_COMPARED = 10_000  # sets of GPUs whose links are compared; a machine of 16 has 12,870 of 8
# What others use of a GPU varies: memory is planned in steps of this many bytes, and GPUs count as equally free by it.
_STEP = 512 * 2**20


def usable(gpu: Gpu) -> int:
    """Bytes of a GPU that may be planned."""
    return gpu.memory_free // _STEP * _STEP


def named_gpus(flag: str, text: str | None, available: Sequence[Gpu]) -> tuple[Gpu, ...] | None:
    """The GPUs a user named with `flag`: '0-2,5', beginnings of UUIDs, or 'cpu' for none; None for None.

    Raises UsageError, naming the flag, for what is malformed, not here, or named twice.
    """
    entries = check_gpus(flag, text)
    if entries is None:
        return None
    chosen = [
        _by_index(flag, entry, available) if isinstance(entry, int) else _by_uuid(flag, entry, available)
        for entry in entries
    ]
    for place, gpu in enumerate(chosen):
        if gpu in chosen[:place]:
            raise UsageError(f"{flag}: {text!r} names GPU {gpu.index} twice", remedy="name each once")
    return tuple(chosen)


def check_gpus(flag: str, text: str | None) -> list[int | str] | None:
    """The indices and beginnings of UUIDs that a user named with `flag`, whether they are here or not; None for None.

    Raises UsageError, naming the flag, for what is malformed.
    """
    if text is None:
        return None
    if text.strip().lower() == CPU:
        return []
    entries: list[int | str] = []
    for entry in (part.strip() for part in text.split(",")):
        if entry.startswith(_UUIDS):
            entries.append(entry)
            continue
        try:
            entries += parse_cores(entry)
        except ValueError as error:
            raise UsageError(
                f"{flag}: {text!r} names no GPUs", why=str(error), remedy="write for example 0-3, 0,2 or cpu"
            ) from None
    return entries


def _by_uuid(flag: str, beginning: str, available: Sequence[Gpu]) -> Gpu:
    matching = [gpu for gpu in available if gpu.uuid and gpu.uuid.startswith(beginning)]
    if len(matching) != 1:
        raise UsageError(
            f"{flag}: {len(matching)} GPUs have a UUID that begins with {beginning}",
            remedy="`tide gpus` lists those here",
        )
    return matching[0]


def _by_index(flag: str, index: int, available: Sequence[Gpu]) -> Gpu:
    for gpu in available:
        if gpu.index == index:
            return gpu
    here = ", ".join(str(gpu.index) for gpu in available) or "none"
    raise UsageError(
        f"{flag}: GPU {index} is not available",
        why=f"available: {here}",
        remedy="`tide gpus` lists those of this machine",
    )


def equal_groups(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """GPUs of one make together, the strongest make first: by generation, then by memory, then by number."""
    groups: dict[tuple[object, ...], list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault((gpu.vendor, gpu.name, gpu.capability, gpu.mig), []).append(gpu)
    return sorted(groups.values(), key=lambda group: (_generation(group[0]), group[0].memory, len(group)), reverse=True)


def _generation(gpu: Gpu) -> int:
    """NVIDIA's major compute capability; Blackwell has two, 10 and 12. The minor ones and AMD's tell no strength."""
    major = gpu.capability[0] if gpu.capability and gpu.vendor == "nvidia" else 0
    return 10 if major == 12 else major


def tensor_parallel_sizes(shape: TargetShape | None, draft: DraftShape | None) -> Callable[[int], bool]:
    """Whether a target and its draft can be spread over so many GPUs; powers of two where the shape is not known.

    Heads and MLP are cut evenly; fewer KV heads than GPUs are copied, which again must come out even.
    """
    if shape is None:
        return lambda size: size & (size - 1) == 0
    inner = [shape.expert_intermediate_size or shape.intermediate_size, *([draft.intermediate_size] if draft else [])]
    heads = [(shape.heads, shape.kv_heads), *([(draft.heads, draft.kv_heads)] if draft else [])]

    def fits(size: int) -> bool:
        even = all(width % size == 0 for width in inner)
        return even and all(own % size == 0 and (kv % size == 0 or size % kv == 0) for own, kv in heads)

    return fits


def useful_gpus(shape: TargetShape | None) -> int:
    """How many GPUs a target is spread over unless it needs more: each should hold a GiB of weights."""
    return 2**16 if shape is None else max(1, shape.weight_bytes // _LEAST_SHARE)


def best_set(group: Sequence[Gpu], size: int, inventory: Inventory) -> tuple[Gpu, ...]:
    """The `size` freest GPUs of a group; among equally free ones those with the most fast links, then the first.

    A slice of a GPU cannot work together with another one: () for more than one of them.
    """
    if size > len(group) or (size > 1 and group[0].mig):
        return ()
    freest = sorted(map(usable, group), reverse=True)[:size]
    eligible = sorted((gpu for gpu in group if usable(gpu) >= freest[-1]), key=lambda gpu: (-usable(gpu), gpu.index))
    sets = itertools.islice(itertools.combinations(eligible, size), _MOST_COMPARED)
    equally_free = (gpus for gpus in sets if sorted(map(usable, gpus), reverse=True) == freest)
    numbers = {gpu.index for gpu in eligible}
    linked = sum(link.kind in FAST_LINKS and {link.first, link.second} <= numbers for link in inventory.links)
    most = min(linked, size * (size - 1) // 2)  # a set that has so many need not be compared with others
    chosen: tuple[Gpu, ...] = ()
    pairs = -1
    for gpus in equally_free:
        if (own := fast_pairs(gpus, inventory)) > pairs:
            chosen, pairs = gpus, own
        if pairs == most:
            break
    return tuple(sorted(chosen, key=lambda gpu: gpu.index))


def fast_pairs(gpus: Sequence[Gpu], inventory: Inventory) -> int:
    """Pairs of GPUs that are joined by NVLink or XGMI."""
    return sum(inventory.link(*pair) in FAST_LINKS for pair in itertools.combinations(gpus, 2))
