"""`tide top` where there is no terminal to draw on: a line now and then, and one for each event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tide_cli.dashboard.edges import alarms
from tide_cli.dashboard.feed import Snapshot
from tide_cli.dashboard.view import View, cleaned
from tide_cli.dashboard.words import clock, count, duration, length, rate, version

_WIDEST = 400  # columns of a line


def line(view: View) -> str:
    """The figures in one line."""
    steps = view.get("live", "draft_steps")
    parts = [
        str(view.get("state") or "-"),
        f"{rate(view.get('load', 'output_tok_s'))} tok/s out, {rate(view.get('load', 'input_tok_s'))} in",
        f"{count(view.get('load', 'running'))} running, {count(view.get('load', 'queued'))} queued",
        f"accepted {length(view.get('load', 'acceptance_length'))}",
        f"speed-up {length(view.get('speedup'))}",
        f"{'-' if steps is None else steps} draft steps",
        f"{version(view.get('drafts', 'served'))} served",
        _cycle(view),
    ]
    return f"{clock(view.now)}  " + "  ".join(parts)


def _cycle(view: View) -> str:
    state, remaining = view.get("cycle", "state"), view.get("cycle", "remaining_s")
    return f"learning {state or '-'}" + (f", {duration(remaining)} left" if remaining else "")


def report(snapshots: Iterator[Snapshot], view: Callable[[Snapshot], View]) -> Iterator[str]:
    """A line for each event since the first snapshot, for each trouble as it comes and goes, and for each snapshot."""
    told, trouble = -1, ""
    for snapshot in snapshots:
        now = view(snapshot)
        events: list[Any] = [event for event in snapshot.events if event["id"] > told]
        if told >= 0:
            yield from (f"{clock(event['time'])}  {cleaned(event['text'])}" for event in events)
        told = max([told, *(event["id"] for event in events)], default=told)
        words = "; ".join(text.plain for text in alarms(now, _WIDEST, 3))
        before, trouble = trouble, words.split(" for ")[0]
        if trouble != before:
            yield f"{clock(now.now)}  {words or 'all is well again'}"
        if not now.stale:
            yield line(now)
