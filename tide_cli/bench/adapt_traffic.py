"""The traffic of a shift experiment, cut into pieces that arms answer in turns, and what a piece came to. Pure."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tide_cli.bench.adapt_figures import Pass, acceptance_length
from tide_cli.bench.client import Answer
from tide_cli.bench.figures import reasons, seconds_of, whole
from tide_cli.bench.replay import Arrival, schedule
from tide_cli.bench.requests import Request
from tide_cli.bench.shift import Phase, pieces


@dataclass(frozen=True)
class Piece:
    """What is sent together. concurrency: requests at a time, None where `arrivals` say when each is sent, in seconds
    from the first one; turn: how many of its phase went before it at the same concurrency."""

    requests: tuple[Request, ...]
    concurrency: int | None
    turn: int = 0
    arrivals: tuple[float, ...] | None = None


def along(
    trace: Sequence[Arrival], phases: Sequence[Phase], speed: float
) -> tuple[list[Phase], tuple[tuple[float, ...], ...]]:
    """(the phases with answers no longer than the trace's, the seconds at which each one's requests arrive).

    One row for each request, phase after phase; speed: 2 is twice as fast. UsageError where there are fewer rows.
    """
    requests = [request for phase in phases for request in phase.requests]
    sent, moments = schedule(requests, count=len(requests), trace=trace, rate=None, speed=speed, seed=0)
    rows = zip(sent, moments or (), strict=True)
    found = [list(itertools.islice(rows, len(phase.requests))) for phase in phases]
    return (
        [replace(phase, requests=tuple(one for one, _ in own)) for phase, own in zip(phases, found, strict=True)],
        tuple(tuple(moment for _, moment in own) for own in found),
    )


def cut(phase: Phase, size: int, concurrency: Sequence[int], arrivals: Sequence[float] = ()) -> list[Piece]:
    """The phase in pieces of `size`, which take the concurrencies in turn.

    arrivals: of its requests, if not so many at a time. What an arm waits for its turn is no part of them: the first
    request of a piece arrives when its turn begins.
    """
    found = pieces(phase.requests, size)
    if arrivals:
        moments = [arrivals[start : start + size] for start in range(0, len(arrivals), size)]
        return [
            Piece(requests, None, place, tuple(moment - at[0] for moment in at))
            for place, (requests, at) in enumerate(zip(found, moments, strict=True))
        ]
    return [
        Piece(requests, concurrency[place % len(concurrency)], place // len(concurrency))
        for place, requests in enumerate(found)
    ]


def sums(answers: Sequence[Answer]) -> dict[str, Any]:
    """The figures of answers that a Pass and a Measured have in common."""
    good = whole(answers)
    return {
        "seconds": seconds_of(answers),
        "requests": len(answers),
        "errors": len(answers) - len(good),
        "tokens": sum(answer.completion_tokens for answer in good),
        "verify_steps": sum(answer.verify_steps or 0 for answer in good),
        "verified_tokens": sum(answer.completion_tokens for answer in good if answer.verify_steps),
        "reasons": tuple(reasons(answers)),
    }


def digests(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Of each text: the same for the same text."""
    return tuple(hashlib.sha256(answer.text.encode(errors="surrogatepass")).hexdigest()[:16] for answer in answers)


def told(made: Pass) -> str:
    """'tide v0003 2.10 24.9 tok/s': the draft in service at its end, acceptance length, output."""
    length = acceptance_length([made])
    words = "-" if length is None else f"{length:.2f}"
    return f"{made.arm} v{made.draft or 0:04d} {words} {made.tokens / (made.seconds or 1):.1f} tok/s"
