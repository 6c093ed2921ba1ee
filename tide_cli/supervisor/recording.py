"""The history of a running appliance: what goes into it each second, and how it is given out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from tide_cli.errors import UsageError
from tide_cli.paths import Paths
from tide_cli.supervisor.journal import read_events
from tide_cli.supervisor.watchers import Seen
from tide_cli.telemetry.history import History, read_history, step_for
from tide_cli.telemetry.rows import STEPS, Row

# events that explain a change of the figures; an engine that has become ready has been started, or started anew
_MARKS = {"swap": "swap", "rollback": "rollback", "cycle": "cycle", "ready": "restart"}


class Recorder:
    """Writes a row at each look. status: the latest one; say: told what goes wrong, in words."""

    def __init__(self, paths: Paths, status: Callable[[], Mapping[str, Any]], say: Callable[[str], None]) -> None:
        self._status = status
        self._history = History(paths.history, say)

    def look(self, seen: Seen) -> None:
        self._history.add(row(self._status(), seen, int(time.time())))

    def close(self) -> None:
        self._history.close()


def row(status: Mapping[str, Any], seen: Seen, second: int) -> Row:
    """The row of one second, from the latest status and the latest look."""
    load = status["load"] if seen.figures else {}
    return Row(
        second,
        seen.interval,
        running=load.get("running"),
        queued=load.get("queued"),
        kv_use=load.get("kv_use"),
        spool_fill=status["spool"].get("fill"),
        dropped=dropped(status["spool"]) if status["spool"] else None,
        version=status["drafts"]["served"],
        draft_steps=status["live"]["draft_steps"],
    )


def dropped(spool: Mapping[str, Any]) -> int:
    """Requests that were not stored, whatever the cause; spool: the status field."""
    return sum(count for name, count in spool.items() if name.startswith("dropped_"))


def take_history(paths: Paths, since: float, step: str = "auto", most: int | None = None) -> dict[str, Any]:
    """The last `since` seconds: {"step", "rows", "marks"}, as docs/telemetry.md says; also without an appliance.

    step: seconds of a row, 'auto' for the finest that reaches back so far. most: combine rows until they are about so
    many; the step that is told is then theirs. UsageError, TideError.
    """
    if step != "auto" and step not in map(str, STEPS):
        raise UsageError(f"there is no step of {step} s", remedy="1, 10, 60 or auto")
    if not since > 0:
        raise UsageError(f"{since} seconds back is no span of time", remedy="a positive number of seconds")
    now = time.time()
    since = min(since, now)
    seconds = step_for(since) if step == "auto" else int(step)
    span = seconds * (1 if most is None else max(1, math.ceil(since / seconds / most)))
    rows = read_history(paths.history, now - since, now + 1, seconds, None if span == seconds else span)
    events = read_events(paths.database, since=now - since)
    return {
        "step": span,
        "rows": [row.figures() for row in rows],
        "marks": [
            {"time": event["time"], "kind": _MARKS[event["kind"]], "text": event["text"]}
            for event in events
            if event["kind"] in _MARKS
        ],
    }
