"""The supervisor's latest answers, asked for once a second by a thread of its own, and kept while it is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tide_cli.dashboard.view import View
from tide_cli.errors import NotRunningError, TideError
from tide_cli.supervisor.control_client import ask

_EVERY = 1.0  # seconds between two rounds of questions
_WITHIN = 2.0  # seconds an answer may take
_SPAN = 960.0  # seconds of history that are kept: what the plots show, and a little
_OVERLAP = 5.0  # seconds asked for again: the newest row may not have been whole
_EVENTS = 200  # kept

Ask = Callable[..., Any]


@dataclass(frozen=True)
class Snapshot:
    """status to events: see View. answered: monotonic second of the last answer; gone: nobody listens."""

    status: Mapping[str, Any]
    answered: float
    rows: Sequence[Mapping[str, Any]] = ()
    marks: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    gone: bool = False

    def view(self, now: float, monotonic: float, ascii: bool) -> View:
        """At a moment of both clocks."""
        silence = max(0.0, monotonic - self.answered)
        return View(self.status, now, self.rows, self.marks, self.events, silence, self.gone, ascii)


class Feed:
    """Asks the appliance that listens on `socket`."""

    def __init__(self, socket: Path, ask: Ask = ask) -> None:
        self._socket, self._ask = socket, ask
        self._closed = threading.Event()
        self._asking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self.latest = Snapshot({}, time.monotonic())

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns at once; a question that is under way ends by itself."""
        self._closed.set()

    def poll(self) -> None:
        """One round of questions; `latest` is another object afterwards."""
        with self._asking:
            self._poll()

    def _poll(self) -> None:
        before = self.latest
        try:
            status = self._get("status")
            known = before.events if status.get("pid") == before.status.get("pid") else ()
            events = merged(known or self._get(f"events?newest={_EVENTS}"), status["events"], "id")[-_EVENTS:]
            rows, marks = self._history(before)
        except NotRunningError:
            self.latest = replace(before, gone=True)
        except TideError:
            self.latest = replace(before, gone=False)  # it listens, and its silence grows
        else:
            self.latest = Snapshot(status, time.monotonic(), rows, marks, events)

    def _history(self, before: Snapshot) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        now = time.time()
        newest = before.rows[-1]["time"] if before.rows else now - _SPAN
        since = min(_SPAN, max(0.0, now - newest) + _OVERLAP)
        try:
            answer = self._get(f"history?since={since:.0f}&step=1")
        except TideError:  # the figures of now are worth more than those before
            return list(before.rows), list(before.marks)
        rows = merged(before.rows, answer["rows"], "time")
        marks = merged(before.marks, answer["marks"], "time")
        return [row for row in rows if row["time"] >= now - _SPAN], [m for m in marks if m["time"] >= now - _SPAN]

    def _get(self, what: str) -> Any:
        return self._ask(self._socket, "GET", f"/v1/{what}", timeout=_WITHIN)

    def _run(self) -> None:
        while not self._closed.is_set():
            begun = time.monotonic()
            self.poll()
            self._closed.wait(max(0.0, begun + _EVERY - time.monotonic()))


def merged(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Both by ascending key; a new row takes the place of the old one with its key."""
    if not new:
        return list(old)
    kept = {row[key]: row for row in old} | {row[key]: row for row in new}
    return [kept[value] for value in sorted(kept)]
