"""CPU cores: their notation, and how engine and trainer share them."""

from __future__ import annotations

from collections.abc import Sequence

from tide_cli.errors import UsageError


def divide_cores(
    nodes: Sequence[Sequence[int]], *, training: bool, serve_cores: str | None, train_cores: str | None
) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """Cores of the engine, cores of the trainer ((): it does not run), notes.

    nodes: the cores of each NUMA node, those that should serve first. Whole nodes are given where there are several;
    the cores of one node are halved, the larger half serves. What the user named stays as it is.
    """
    available = [core for node in nodes for core in node]
    serve: Sequence[int] = named_cores("--serve-cores", serve_cores, available)
    train: Sequence[int] = named_cores("--train-cores", train_cores, available)
    if not training:
        notes = ["--train-cores has no effect: nothing is trained"] if train_cores else []
        return tuple(serve or sorted(available)), (), notes
    if not serve and not train:
        serve, train = _halves(nodes)
    elif not serve or not train:
        rest = sorted(set(available) - set(serve or train)) or sorted(available)
        serve, train = serve or rest, train or rest
    shared = set(serve) & set(train)
    notes = [f"engine and trainer share core {format_cores(shared)}: both will be slower"] if shared else []
    return tuple(serve), tuple(train), notes


def _halves(nodes: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The first nodes until they hold half of the cores, and the others; a single node is cut."""
    filled = [sorted(node) for node in nodes if node]
    total = sum(len(node) for node in filled)
    if len(filled) == 1:
        cores, middle = filled[0], (total + 1) // 2
        return (cores, cores) if total == 1 else (cores[:middle], cores[middle:])
    serve = list(filled[0])
    last = 1
    while 2 * len(serve) < total and last < len(filled) - 1:
        serve += filled[last]
        last += 1
    return sorted(serve), sorted(core for node in filled[last:] for core in node)


def named_cores(flag: str, text: str | None, available: Sequence[int]) -> tuple[int, ...]:
    """The cores a user named with `flag`, () for None. Raises UsageError for malformed or foreign ones."""
    cores = check_cores(flag, text)
    if foreign := sorted(set(cores) - set(available)):
        raise UsageError(
            f"{flag}: core {format_cores(foreign)} is not available here",
            remedy=f"choose from {format_cores(available)}",
        )
    return cores


def check_cores(flag: str, text: str | None) -> tuple[int, ...]:
    """The cores a user named with `flag`, whether they are here or not; () for None. Raises UsageError."""
    if text is None:
        return ()
    try:
        return parse_cores(text)
    except ValueError as error:
        raise UsageError(
            f"{flag}: {text!r} names no cores", why=str(error), remedy="write for example 0-3 or 0,2"
        ) from None


def parse_cores(text: str) -> tuple[int, ...]:
    """'0-2,5' -> (0, 1, 2, 5), sorted, each once. Raises ValueError."""
    cores: set[int] = set()
    for part in str(text).split(","):
        first, dash, last = part.strip().partition("-")
        if not _number(first) or (dash and not _number(last)):
            raise ValueError(f"{part.strip()!r} is neither a number nor a range")
        if dash and (int(last) < int(first) or int(last) - int(first) > 4096):
            raise ValueError(f"{part.strip()!r} is not a range that rises")
        cores.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cores))


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5


def format_cores(cores: Sequence[int] | set[int]) -> str:
    """(0, 1, 2, 5) -> '0-2,5'; the inverse of `parse_cores`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
