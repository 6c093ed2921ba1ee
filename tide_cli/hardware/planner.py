"""Which devices serve and which train: a pure function from inventory and wishes to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tide_cli.errors import UsageError
from tide_cli.hardware.inventory import Inventory


@dataclass(frozen=True)
class Partition:
    """The devices of one child: CPU core ids (never empty) and CUDA device indices (empty on a CPU)."""

    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()

    @property
    def device(self) -> str:
        """'cuda' or 'cpu', as torch names it."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class Plan:
    """serve: the engine's devices; train: the trainer's, None where nothing is trained; notes: for the user."""

    serve: Partition
    train: Partition | None
    notes: tuple[str, ...] = ()

    @property
    def tensor_parallel(self) -> int:
        """GPUs that one copy of the target is spread over; 1 on a CPU."""
        return max(1, len(self.serve.gpus))


def make_plan(
    inventory: Inventory, *, training: bool = True, serve_cores: str | None = None, train_cores: str | None = None
) -> Plan:
    """Divide the machine. serve_cores and train_cores ('0-3,6') overrule the division of the cores.

    Raises UsageError for cores that are malformed or not ours to use.
    """
    notes: list[str] = []
    serve: Sequence[int] = _named_cores("serve_cores", serve_cores, inventory.cores)
    train: Sequence[int] = _named_cores("train_cores", train_cores, inventory.cores) if training else ()
    if train_cores and not training:
        notes.append("train_cores has no effect: training is off")
    if not training:
        serve = serve or inventory.cores
    elif not serve or not train:
        serve, train = _divide_cores(inventory.cores, serve, train)
    if training and set(serve) & set(train):
        notes.append(f"engine and trainer share core {format_cores(set(serve) & set(train))}: both will be slower")
    serve_gpus, train_gpus = _divide_gpus([gpu.index for gpu in inventory.gpus], training, notes)
    return Plan(
        serve=Partition(tuple(serve), serve_gpus),
        train=Partition(tuple(train), train_gpus) if training else None,
        notes=tuple(notes),
    )


def _divide_cores(
    cores: Sequence[int], serve: Sequence[int], train: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """The first half serves (the larger one of an odd number), the rest trains; what the user named stays as it is."""
    if serve or train:
        rest = [core for core in cores if core not in (serve or train)] or list(cores)
        return serve or rest, train or rest
    if len(cores) == 1:
        return cores, cores
    middle = (len(cores) + 1) // 2
    return cores[:middle], cores[middle:]


def _divide_gpus(gpus: Sequence[int], training: bool, notes: list[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The last GPU trains, the largest power of two of the others serves."""
    if not gpus:
        return (), ()
    if training and len(gpus) == 1:
        notes.append("one GPU: engine and trainer share it, training slows serving down")
        return (gpus[0],), (gpus[0],)
    serving = gpus[:-1] if training else gpus
    used = 1 << (len(serving).bit_length() - 1)
    if used < len(serving):
        idle = ", ".join(str(gpu) for gpu in serving[used:])
        notes.append(f"GPU {idle} stays idle: the target is spread over a power of two of them")
    return tuple(serving[:used]), (gpus[-1],) if training else ()


def _named_cores(name: str, text: str | None, available: Sequence[int]) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        cores = parse_cores(text)
    except ValueError as error:
        raise UsageError(
            f"{name}: {text!r} names no cores", why=str(error), remedy="write for example 0-3 or 0,2"
        ) from None
    foreign = sorted(set(cores) - set(available))
    if foreign:
        raise UsageError(
            f"{name}: core {format_cores(foreign)} is not available here",
            remedy=f"choose from {format_cores(available)}",
        )
    return cores


def parse_cores(text: str) -> tuple[int, ...]:
    """'0-2,5' -> (0, 1, 2, 5), sorted, each once. Raises ValueError."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{part.strip()!r} is neither a number nor a range")
        if dash and (int(last) < int(first) or int(last) - int(first) > 4096):
            raise ValueError(f"{part.strip()!r} is not a range that rises")
        cores.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cores))


def format_cores(cores: Sequence[int] | set[int]) -> str:
    """(0, 1, 2, 5) -> '0-2,5'; the inverse of `parse_cores`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
