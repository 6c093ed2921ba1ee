"""The traffic of a shift experiment, cut into the pieces that an arm answers in its turn, and what they came to. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tide_cli.bench.adapt_figures import Pass
from tide_cli.bench.client import Answer
from tide_cli.bench.figures import seconds_of, whole
from tide_cli.bench.requests import Request
from tide_cli.bench.shift import Phase, pieces


@dataclass(frozen=True)
class Piece:
    """What is sent together. concurrency: requests at a time; turn: how many of its phase went before it so."""

    requests: tuple[Request, ...]
    concurrency: int
    turn: int = 0


def cut(phase: Phase, size: int, concurrency: Sequence[int]) -> list[Piece]:
    """The phase in pieces of `size`, which take the concurrencies in turn."""
    found = pieces(phase.requests, size)
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
    }


def digests(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Of each text: the same for the same text."""
    return tuple(hashlib.sha256(answer.text.encode(errors="surrogatepass")).hexdigest()[:16] for answer in answers)


def told(made: Pass) -> str:
    """'tide v0003 2.10 24.9 tok/s': the draft in service at its end, acceptance length, output."""
    length, rate = made.tokens / max(1, made.verify_steps), made.tokens / (made.seconds or 1)
    return f"{made.arm} v{made.draft or 0:04d} {length:.2f} {rate:.1f} tok/s"
