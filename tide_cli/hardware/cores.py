"""CPU cores: their notation."""

from __future__ import annotations

from collections.abc import Sequence

from tide_cli.errors import UsageError


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


def core_words(cores: Sequence[int] | set[int]) -> str:
    """(0,) -> 'core 0', (0, 1) -> 'cores 0-1'."""
    return f"{'core' if len(cores) == 1 else 'cores'} {format_cores(cores)}"


def format_cores(cores: Sequence[int] | set[int]) -> str:
    """(0, 1, 2, 5) -> '0-2,5'; the inverse of `parse_cores`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
