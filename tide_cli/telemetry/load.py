"""From two looks at the engine's counters to rates and latencies of the time between. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tide_cli.telemetry.figures import Counts, EngineCounters, EngineFigures

_RATE_SECONDS = 5.0  # over which tokens/s are told
_LATENCY_SECONDS = 60.0  # over which latencies are told: fewer requests make no percentile

Buckets = Mapping[tuple[float, float], float]  # (above, up to) in seconds -> events in it; empty ones are left out


@dataclass(frozen=True)
class Interval:
    """What happened in `seconds`: tokens out and in; first_token, later_token: how long requests waited for theirs.

    acceptance_length: of its rounds, None where no token was generated.
    """

    seconds: float
    output: float = 0.0
    input: float = 0.0
    acceptance_length: float | None = None
    first_token: Buckets = field(default_factory=dict)
    later_token: Buckets = field(default_factory=dict)


def between(
    before: EngineCounters, after: EngineCounters, seconds: float, acceptance_length: float | None
) -> Interval | None:
    """None where no time has passed or a counter has fallen: another engine began to count."""
    if seconds <= 0 or after.output < before.output or after.input < before.input:
        return None
    output = after.output - before.output
    return Interval(
        seconds,
        output,
        after.input - before.input,
        acceptance_length if output else None,
        _in_buckets(before.first_token, after.first_token),
        _in_buckets(before.later_token, after.later_token),
    )


def _in_buckets(before: Counts, after: Counts) -> dict[tuple[float, float], float]:
    found: dict[tuple[float, float], float] = {}
    low = below = 0.0
    for high in sorted(after):
        grown = after[high] - before.get(high, 0.0)
        if grown > below:
            found[low, high] = grown - below
        low, below = high, max(below, grown)
    return found


def merged(several: Iterable[Buckets]) -> dict[tuple[float, float], float]:
    """The events of several intervals together."""
    total: dict[tuple[float, float], float] = {}
    for buckets in several:
        for ends, events in buckets.items():
            total[ends] = total.get(ends, 0.0) + events
    return total


def quantile(buckets: Buckets, share: float) -> float | None:
    """The latency, in milliseconds, that `share` of the events stay below; None without events.

    Straight inside a bucket, as PromQL's histogram_quantile is; in the last, endless one its lower end.
    """
    wanted, seen = share * sum(buckets.values()), 0.0
    for (low, high), events in sorted(buckets.items()):
        if seen + events >= wanted:
            inside = 0.0 if math.isinf(high) else (high - low) * (wanted - seen) / events
            return round(1000 * (low + inside), 2)
        seen += events
    return None


class LoadMeter:
    """The latest intervals of one engine. For one thread."""

    def __init__(self) -> None:
        self._before: EngineCounters | None = None
        self._at = 0.0
        self._intervals: deque[Interval] = deque()

    def look(self, figures: EngineFigures, counters: EngineCounters, now: float) -> Interval | None:
        """Another look, at the monotonic second `now`; the interval since the one before, None where there is none."""
        before, self._before = self._before, counters
        began, self._at = self._at, now
        interval = None if before is None else between(before, counters, now - began, figures.accept_length)
        if interval is None:
            self._intervals.clear()
            return None
        self._intervals.append(interval)
        while sum(kept.seconds for kept in self._intervals) - self._intervals[0].seconds >= _LATENCY_SECONDS:
            self._intervals.popleft()
        return interval

    def load(self, figures: EngineFigures) -> dict[str, Any]:
        """The status field `load`."""
        recent = self._recent(_RATE_SECONDS)
        seconds = sum(interval.seconds for interval in recent)
        return {
            "output_tok_s": round(sum(interval.output for interval in recent) / seconds, 2) if seconds else None,
            "input_tok_s": round(sum(interval.input for interval in recent) / seconds, 2) if seconds else None,
            "acceptance_length": mean_acceptance(recent),
            "running": figures.running,
            "queued": figures.queued,
            "ttft_ms": self._latency("first_token"),
            "itl_ms": self._latency("later_token"),
            "kv_use": figures.kv_use,
        }

    def _recent(self, seconds: float) -> list[Interval]:
        """The newest intervals that last `seconds` together, at least."""
        found: list[Interval] = []
        for interval in reversed(self._intervals):
            if sum(one.seconds for one in found) >= seconds:
                break
            found.append(interval)
        return found

    def _latency(self, which: str) -> dict[str, float | None]:
        buckets = merged(getattr(interval, which) for interval in self._intervals)
        return {"p50": quantile(buckets, 0.50), "p95": quantile(buckets, 0.95)}


def mean_acceptance(intervals: Iterable[Interval]) -> float | None:
    """Tokens per verify step over several intervals: the mean over steps, so that each weighs by the steps it had."""
    told = [(one.output, one.acceptance_length) for one in intervals if one.acceptance_length]
    steps = sum(tokens / length for tokens, length in told)
    return round(sum(tokens for tokens, _ in told) / steps, 4) if steps else None


def no_load() -> Mapping[str, Any]:
    """The status field `load` while no engine answers."""
    nothing = {"p50": None, "p95": None}
    names = ("output_tok_s", "input_tok_s", "acceptance_length", "running", "queued", "kv_use")
    return {**dict.fromkeys(names), "ttft_ms": dict(nothing), "itl_ms": dict(nothing)}
