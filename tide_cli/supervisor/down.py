"""Ending an appliance from outside: in order through its supervisor, by force where that does not help."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tide_cli.errors import NotRunningError, TideError
from tide_cli.file_locks import is_locked
from tide_cli.paths import Paths
from tide_cli.supervisor.control_client import UP_REMEDY, NoAnswerError, ask
from tide_cli.supervisor.family import send
from tide_cli.supervisor.journal import read_events
from tide_cli.supervisor.leftovers import find_leftovers, reap_leftovers, was_killed
from tide_cli.supervisor.lock import StateLock, already_runs, read_holder
from tide_cli.supervisor.procfs import ProcessStat, process_stat, same_process

_POLL = 0.1
_MARGIN = 30.0  # seconds beyond the children's own bound: killing, and the end of the supervisor


@dataclass(frozen=True)
class Ended:
    """supervisor: whether one was running; leftovers: processes of a former one that were ended."""

    supervisor: bool
    leftovers: int


def bring_down(paths: Paths, *, now: bool = False, say: Callable[[str], None] = lambda text: None) -> Ended:
    """End the appliance of this state folder and wait until nothing of it is left. say: told what it waits for.

    Needs no settings: one that became unreadable must not keep an appliance from being ended. Raises NotRunningError
    where there was nothing, TideError where something stays.
    """
    running = is_locked(paths.lock)
    if running:
        holder = read_holder(paths.lock)
        if holder.get("command"):
            raise NotRunningError(f"no appliance runs on {paths.state}", why=already_runs(paths.lock).what)
        pid, stop_timeout = holder.get("pid"), holder.get("stop_timeout")
        supervisor = process_stat(pid) if isinstance(pid, int) else None
        told = _Told(paths, say)
        _ask_to_stop(paths, supervisor, now, say)
        within = (stop_timeout if isinstance(stop_timeout, int | float) else 0) + _MARGIN
        _wait_for_end(paths, supervisor, within, told.look)
        told.look()
    killed = was_killed(paths.run / "children.json")
    if not running and not killed and not find_leftovers(paths.state, paths.run / "children.json"):
        raise NotRunningError(f"no appliance runs on {paths.state}", remedy=UP_REMEDY)
    lock = (
        StateLock(paths.lock, command="down") if paths.state.is_dir() else None
    )  # a removed folder's processes may live on
    try:
        found, remaining = reap_leftovers(paths.state, paths.run / "children.json")
        paths.socket.unlink(missing_ok=True)
        if killed and not remaining:
            shutil.rmtree(paths.scratch, ignore_errors=True)
    finally:
        if lock:
            lock.release(remove=True)
    if remaining:
        raise TideError(
            f"pid {', '.join(str(stat.pid) for stat in remaining)} cannot be ended",
            why="it hangs in the kernel",
            remedy="restart the machine",
        )
    return Ended(running, len(found))


class _Told:
    """What the supervisor writes down of its end, handed on as it comes."""

    def __init__(self, paths: Paths, say: Callable[[str], None]) -> None:
        self._database, self._say, self._last = paths.database, say, 0
        self._last = max((event["id"] for event in self._events(newest=1)), default=0)

    def look(self) -> None:
        for event in self._events(after=self._last):
            self._last = event["id"]
            if event["kind"] in ("stop", "killed"):
                self._say(event["text"])

    def _events(self, **which: int) -> list[dict[str, Any]]:
        try:
            return read_events(self._database, **which)
        except TideError:  # whatever the journal is like, the appliance is ended
            return []


def _ask_to_stop(paths: Paths, supervisor: ProcessStat | None, now: bool, say: Callable[[str], None]) -> None:
    try:
        ask(paths.socket, "POST", "/v1/stop", {"now": now}, timeout=10)
    except TideError as error:
        # it holds the lock but does not answer: it is just coming up or going down, or it hangs
        if isinstance(error, NoAnswerError) and not now:
            say(error.lines()[0])
        send([supervisor] if supervisor else [], signal.SIGKILL if now else signal.SIGTERM)


def _wait_for_end(paths: Paths, supervisor: ProcessStat | None, seconds: float, meanwhile: Callable[[], None]) -> None:
    """Until the lock is free, and its holder's process gone, which takes a moment longer."""
    deadline = time.monotonic() + seconds
    while is_locked(paths.lock) or (supervisor and same_process(supervisor)):
        if time.monotonic() > deadline:
            raise TideError(
                f"the supervisor of {paths.state} did not end within {seconds:.0f} s",
                remedy="`tide down --now` kills it",
            )
        meanwhile()
        time.sleep(_POLL)
