"""The user's command that is run for each event. It can be slow, hang or fail: the appliance does not notice."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tide_cli.errors import reason
from tide_cli.paths import Paths
from tide_cli.supervisor.family import Mark, end_family, find_family
from tide_cli.supervisor.logs import open_log

NAME = "on_event"
_WAITING = 100  # events at most; more than that are dropped
_WITHIN = 30.0  # seconds a command may take before it is killed
_LAST_WITHIN = 5.0  # seconds in which those that wait at the appliance's end are told
_LONGEST = 32_000  # bytes of one variable; the kernel takes 128 KiB


class Notifier:
    """Runs `command` with a shell, one event after the other, on a thread of its own; None: nothing is run.

    say: told in words of a failure, once until there was a success; from another thread.
    """

    def __init__(self, command: str | None, paths: Paths, say: Callable[[str], None], within: float = _WITHIN) -> None:
        self._command, self._paths, self._say, self._within = command, paths, say, within
        self._queue: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._failing = self._overfull = False
        self._deadline: float | None = None  # monotonic second of the end
        self._thread = threading.Thread(target=self._work, name=NAME, daemon=True)
        if command is not None:
            self._thread.start()

    def tell(self, event: Mapping[str, Any]) -> None:
        """event: a row of the events table. Returns at once; its own failures are told to nobody."""
        if self._command is None or event["kind"] == NAME:
            return
        overfull, before = self._queue.qsize() >= _WAITING, self._overfull
        self._overfull = overfull
        if not overfull:
            self._queue.put(event)
        elif not before:
            self._say(f"{NAME} is too slow: {_WAITING} events wait, further ones are not told")

    def close(self, within: float = _LAST_WITHIN) -> None:
        """Let it tell what waits, within so many seconds."""
        if self._command is None:
            return
        self._deadline = time.monotonic() + within
        self._queue.put(None)
        self._thread.join(within + 1)

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            if self._deadline is not None and time.monotonic() > self._deadline:
                return
            try:
                failure = self._run(event)
            except (OSError, ValueError) as error:
                failure = reason(error)
            if failure and not self._failing:
                self._say(f"{NAME} failed: {failure}; {self._paths.logs / NAME}.log may say why")
            self._failing = failure is not None

    def _run(self, event: Mapping[str, Any]) -> str | None:
        """What went wrong, None for nothing."""
        assert self._command is not None
        # so that it is found, should it outlive a killed supervisor
        mark = Mark.of(self._paths.state, NAME)
        environment = {**os.environ, **mark.environment(), **event_variables(event, self._paths)}
        with open_log(self._paths.logs / f"{NAME}.log") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        until = time.monotonic() + self._within
        while time.monotonic() < min(until, self._deadline or until):
            try:
                code = process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
            return f"exit code {code}" if code else None
        end_family(lambda: find_family(mark, process.pid), grace=0)
        process.wait()
        return f"killed after {self._within:.0f} s"


def event_variables(event: Mapping[str, Any], paths: Paths) -> dict[str, str]:
    """What the command finds in its environment, beside the supervisor's own."""
    values = {
        "ID": "" if event["id"] is None else event["id"],
        "TIME": datetime.fromtimestamp(event["time"], UTC).isoformat(timespec="milliseconds"),
        "KIND": event["kind"],
        "TEXT": event["text"],
        "DATA": data if len(data := json.dumps(event["data"])) <= _LONGEST else "{}",
    }
    told = {f"TIDE_EVENT_{name}": str(value).replace("\0", "")[:_LONGEST] for name, value in values.items()}
    return {**told, "TIDE_STATE_DIR": str(paths.state)}
