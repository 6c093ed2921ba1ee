"""The clock of a shift experiment, which stands still from an interruption until the next piece can begin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tide_cli.bench.adapt_figures import Pass

Gap = tuple[float, float]  # unix seconds


@dataclass(frozen=True)
class Session:
    """Of a process that goes on with an interrupted experiment. begun: unix second at which its engines were ready."""

    begun: float


def interruptions(passes: Iterable[Pass], sessions: Iterable[Session]) -> list[Gap]:
    """From the end of the last finished pass to the begin of the session that went on, for each."""
    ends = sorted(one.begun + one.seconds for one in passes)
    gaps: dict[float, float] = {}
    for session in sessions:
        before = [end for end in ends if end <= session.begun]
        if before:
            gaps[before[-1]] = session.begun  # one that finished nothing is part of the next one's gap
    return list(gaps.items())


def without(moment: float, gaps: Sequence[Gap]) -> float:
    """The moment, earlier by the gaps before it; what falls into a gap comes at its begin."""
    return moment - sum(max(0.0, min(moment, end) - begin) for begin, end in gaps)
