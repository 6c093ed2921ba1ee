"""One row of the history, and what several rows are together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tide_cli.telemetry.load import Interval, mean_acceptance, merged, quantile

STEPS = (1, 10, 60)  # seconds that a row stands for
KEPT = {1: 3600, 10: 8640, 60: 129_600}  # rows of each: an hour, a day, 90 days


@dataclass(frozen=True)
class Row:
    """time: unix second it begins at; observed: what the engine did in it, None where it was not seen.

    running, queued, kv_use: means; spool_fill, dropped, version, draft_steps: at the end. None where not known.
    """

    time: int
    observed: Interval | None = None
    running: float | None = None
    queued: float | None = None
    kv_use: float | None = None
    spool_fill: float | None = None
    dropped: int | None = None
    version: int | None = None
    draft_steps: int | None = None

    def figures(self) -> dict[str, Any]:
        """As it is told to the world: rates and percentiles in the place of sums."""
        seen = self.observed
        return {
            "time": self.time,
            "acceptance_length": seen.acceptance_length if seen else None,
            "output_tok_s": round(seen.output / seen.seconds, 2) if seen else None,
            "input_tok_s": round(seen.input / seen.seconds, 2) if seen else None,
            "running": self.running,
            "queued": self.queued,
            "ttft_p95_ms": quantile(seen.first_token, 0.95) if seen else None,
            "itl_p95_ms": quantile(seen.later_token, 0.95) if seen else None,
            "kv_use": self.kv_use,
            "spool_fill": self.spool_fill,
            "dropped": self.dropped,
            "version": self.version,
            "draft_steps": self.draft_steps,
        }


FIGURES = tuple(Row(0).figures())


def combine(rows: Sequence[Row], time: int) -> Row:
    """One row for several, at least one, in order of time; it begins at `time`.

    Sums are added up, so rates and percentiles are those of the whole span; means weigh by the seconds observed.
    """
    intervals = [row.observed for row in rows if row.observed is not None]
    return Row(
        time,
        _together(intervals) if intervals else None,
        running=_mean(rows, "running"),
        queued=_mean(rows, "queued"),
        kv_use=_mean(rows, "kv_use"),
        spool_fill=_last(rows, "spool_fill"),
        dropped=_last(rows, "dropped"),
        version=_last(rows, "version"),
        draft_steps=_last(rows, "draft_steps"),
    )


def spans(rows: Iterable[Row], seconds: int) -> Iterator[Row]:
    """Rows, in order of time, combined to spans of so many seconds; empty ones are left out.

    A span begins with its first row: the appliance may not have run before.
    """
    for _, members in groupby(rows, lambda row: row.time // seconds):
        found = list(members)
        yield combine(found, found[0].time)


def _together(intervals: Sequence[Interval]) -> Interval:
    return Interval(
        sum(one.seconds for one in intervals),
        sum(one.output for one in intervals),
        sum(one.input for one in intervals),
        mean_acceptance(intervals),
        merged(one.first_token for one in intervals),
        merged(one.later_token for one in intervals),
    )


def _mean(rows: Sequence[Row], name: str) -> float | None:
    weighed = [(getattr(row, name), row.observed.seconds if row.observed else 1.0) for row in rows]
    known = [(value, weight) for value, weight in weighed if value is not None]
    total = sum(weight for _, weight in known)
    return round(sum(value * weight for value, weight in known) / total, 4) if total else None


def _last(rows: Sequence[Row], name: str) -> Any:
    return next((value for row in reversed(rows) if (value := getattr(row, name)) is not None), None)
