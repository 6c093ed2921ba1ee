"""What a simulation says: when adaptation pays, how large the spool must be, which split is best. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tide_cli.settings import Settings
from tide_cli.simulation.learner import NEWEST
from tide_cli.simulation.loop import Run
from tide_cli.simulation.ring import Ring
from tide_cli.spool.layout import RowLayout

GIB = 2**30
SIZES = (GIB // 4, GIB, 4 * GIB, 16 * GIB, 64 * GIB)
_BOUNDLESS = 2**50
_LATE = 0.75  # the last quarter of a run tells how it goes on


@dataclass(frozen=True)
class Payback:
    """A run with training against the best one without.

    unit: 'tokens' served where the load keeps its number of requests, else 'request_seconds' that clients wait: an
    engine that keeps up serves all tokens whatever its draft. deficit: the most by which it was behind. at: seconds
    from which on it is never behind again, None where it still is at the end; tokens: served until then; projected:
    seconds at which it would have caught up if it went on as in its last quarter, None where it would not.
    gain: at the end, in the unit; late_gain: how much of it each second of the last quarter brought.
    """

    unit: str
    deficit: float
    at: float | None
    tokens: float | None
    projected: float | None
    gain: float
    late_gain: float


def payback(run: Run, base: Run, *, closed: bool) -> Payback:
    """closed: whether the load keeps its number of requests."""
    pairs = list(zip(run.points, base.points, strict=False))
    if closed:
        gains = [one.tokens - other.tokens for one, other in pairs]
    else:
        gains = [other.request_seconds - one.request_seconds for one, other in pairs]
    slack = 1e-6 * max(1.0, max(map(abs, gains)))
    behind = max((place for place, gain in enumerate(gains) if gain < -slack), default=-1)
    ahead = behind + 1 < len(gains)
    place = int(_LATE * (len(gains) - 1))
    seconds = run.points[len(gains) - 1].at - run.points[place].at
    slope = (gains[-1] - gains[place]) / seconds if seconds else 0.0
    projected = run.points[len(gains) - 1].at - gains[-1] / slope if not ahead and slope > 0 else None
    return Payback(
        "tokens" if closed else "request_seconds",
        max(0.0, -min(gains)),
        run.points[behind + 1].at if ahead else None,
        run.points[behind + 1].tokens if ahead else None,
        projected,
        gains[-1],
        slope,
    )


@dataclass(frozen=True)
class SpoolSize:
    """A ring of `size` bytes under the run's traffic. tokens, samples: that it holds once it is full; oldest: seconds
    that a sample stays; triggers: how many times the tokens that start a cycle it holds; filled: whether the run filled
    it, else the figures are in proportion. enough: for all that a cycle trains on and is judged by."""

    size: int
    tokens: float
    samples: float
    oldest: float
    triggers: float
    filled: bool
    enough: bool


def spool_needed(settings: Settings) -> int:
    """Samples that a cycle looks for: the newest of each split, as the shares of the splits bring them."""
    share = settings.held_out_share
    return ceil(max(NEWEST / (1 - share), settings.gate_samples / share))


def spool_sizes(run: Run, layout: RowLayout, settings: Settings, sizes: Sequence[int] = SIZES) -> list[SpoolSize]:
    """What rings of these sizes would hold of the run's requests; sizes without room for one sample are left out."""
    found = []
    needed = _needed(run, layout, settings)
    for size in sizes:
        ring = _replayed(run, layout, size, settings)
        if not ring.samples or needed is None:
            continue
        filled = len(ring.samples) < ring.stored
        part = 1.0 if filled else ring.fill
        held, samples = sum(one.tokens for one in ring.samples) / part, len(ring.samples) / part
        age = (ring.oldest_age(run.seconds) or 0.0) / part
        enough = samples >= needed
        found.append(SpoolSize(size, held, samples, age, held / settings.cycle_tokens, filled, enough))
    return found


def enough_size(run: Run, layout: RowLayout, settings: Settings) -> int | None:
    """Bytes of the smallest ring that is enough for the run's mean sample; None where nothing was stored."""
    needed = _needed(run, layout, settings)
    if needed is None:
        return None
    ring = _replayed(run, layout, _BOUNDLESS, settings)
    return layout.size_for(ceil(needed * sum(one.pages for one in ring.samples) / ring.stored))


def _needed(run: Run, layout: RowLayout, settings: Settings) -> float | None:
    """Samples that a cycle looks for, and those that come while it trains: what it reads must outlast it."""
    stored = _replayed(run, layout, _BOUNDLESS, settings).stored
    return spool_needed(settings) + settings.cycle_seconds * stored / run.seconds if stored else None


def _replayed(run: Run, layout: RowLayout, size: int, settings: Settings) -> Ring:
    """A ring of that size after the requests of the run that were stored."""
    ring = Ring(layout, size, settings.max_sample_tokens, settings.held_out_share)
    for one in run.finished:
        if one.stored:
            ring.begin(one.ask.number, one.ask.input_tokens)
            ring.finish(one.ask.number, one.ask.input_tokens, one.ask.output_tokens, one.at)
    if settings.retention_hours is not None and size != _BOUNDLESS:
        ring.expire(run.seconds - settings.retention_hours * 3600)
    return ring


def best(runs: Sequence[Run], *, closed: bool) -> int:
    """Place of the run that served most, or whose clients waited least; the first of equals."""
    worth = [run.tokens if closed else -run.points[-1].request_seconds for run in runs]
    return worth.index(max(worth))
