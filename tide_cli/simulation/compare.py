"""Every split of a machine under the same load, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tide_cli.adaptation.speculation import expected_length
from tide_cli.settings import Settings
from tide_cli.simulation.acceptance import Learnable, rate_of
from tide_cli.simulation.answers import (
    SIZES,
    Payback,
    SpoolSize,
    best,
    enough_size,
    payback,
    spool_sizes,
)
from tide_cli.simulation.arrivals import Load
from tide_cli.simulation.loop import Run, Setup, simulate
from tide_cli.simulation.machine import Machine
from tide_cli.simulation.ring import Ring, WrittenRing
from tide_cli.simulation.splits import Division, Split, splits
from tide_cli.spool.layout import RowLayout

GIB = 2**30
DEFAULT_SPOOL = 64 * GIB  # where neither a setting nor the disk says


@dataclass(frozen=True)
class Question:
    """What is asked: a machine, its settings, a load, and what is assumed of the draft. Times in seconds."""

    division: Division
    settings: Settings
    load: Load
    learnable: Learnable
    duration: float
    domains: int = 1
    shift: float = float("inf")

    @property
    def closed(self) -> bool:
        """Whether the load keeps its number of requests."""
        return self.load.concurrency is not None

    @property
    def batch(self) -> int:
        """Requests decoded together when all places are taken."""
        slots = self.settings.max_running_requests
        return min(slots, self.load.concurrency or slots)

    @property
    def context(self) -> float:
        """Tokens that a request has in the KV cache, on average."""
        asked, answered = self.load.mean_lengths
        return asked + answered / 2

    @property
    def layout(self) -> RowLayout:
        return RowLayout(self.division.target.hidden_size, target=self.division.name)


@dataclass(frozen=True)
class Simulated:
    """A split with its run; payback: against the best without training, None where nothing is trained."""

    split: Split
    run: Run
    payback: Payback | None


@dataclass(frozen=True)
class Written:
    """What was written through the real writer: bytes of rows; agrees: the files hold what the arithmetic says."""

    bytes: int
    samples: int
    agrees: bool


@dataclass(frozen=True)
class Answers:
    """splits: the planner's own first; best: place in it; spool: its size under the planner's split; enough: bytes of
    the smallest spool that would do, None where nothing was stored."""

    splits: Sequence[Simulated]
    best: int
    spool_size: int
    spool: Sequence[SpoolSize]
    enough: int | None
    written: Written | None


def answer(question: Question, folder: Path | None = None) -> Answers:
    """Simulate every split. folder: the planner's split writes its spool there, with every byte.

    Raises UsageError as `splits` does, TideError where the folder cannot hold the spool.
    """
    found = splits(question.division, lambda machine: promised(machine, question, question.learnable.reachable))
    size = question.settings.spool_size or found[0].plan.spool_size or DEFAULT_SPOOL
    runs, written = [], None
    for split in found:
        ring = _ring(question, size, folder if split.planned else None)
        runs.append(simulate(_setup(question, split, ring)))
        if isinstance(ring, WrittenRing):
            written = Written(ring.written, len(ring.samples), ring.agrees())
            ring.close()
    plain = [run for split, run in zip(found, runs, strict=True) if split.trainer is None]
    base = plain[best(plain, closed=question.closed)] if plain else None
    results = [
        Simulated(split, run, payback(run, base, closed=question.closed) if split.trainer and base else None)
        for split, run in zip(found, runs, strict=True)
    ]
    layout, settings = question.layout, question.settings
    sizes = spool_sizes(runs[0], layout, settings, sorted({*SIZES, size}))
    enough = enough_size(runs[0], layout, settings)
    return Answers(results, best(runs, closed=question.closed), size, sizes, enough, written)


def promised(machine: Machine, question: Question, length: float) -> float:
    """Output tokens/s of decoding alone with all places taken, at the number of steps that serves most."""
    batch, most = question.batch, question.settings.draft_steps if question.settings.speculates else 0
    rate = rate_of(length, question.settings.draft_steps)
    return max(
        batch * expected_length([rate] * steps) / machine.round_seconds(batch, steps, question.context)
        for steps in range(most + 1)
    )


def _ring(question: Question, size: int, folder: Path | None) -> Ring:
    settings = question.settings
    arguments = question.layout, size, settings.max_sample_tokens, settings.held_out_share
    return Ring(*arguments) if folder is None else WrittenRing(folder, *arguments)


def _setup(question: Question, split: Split, ring: Ring) -> Setup:
    return Setup(
        split.machine,
        question.settings,
        question.learnable,
        question.load,
        ring,
        question.duration,
        split.trainer,
        split.share,
        split.plan.max_total_tokens,
        question.domains,
        question.shift,
    )
