"""A running appliance: one loop that takes a message, asks the core, and carries out what it decided."""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tide_cli.adaptation.gate import MINIMUM_SAMPLES
from tide_cli.drafts.describe import VersionRows
from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.errors import TideError
from tide_cli.printable import many
from tide_cli.supervisor import notify
from tide_cli.supervisor.heartbeat import SLEPT
from tide_cli.supervisor.journal import Journal, read_events
from tide_cli.supervisor.keeping import mark_bad, tidy, with_figures
from tide_cli.supervisor.lifecycle import State
from tide_cli.supervisor.messages import (
    ENGINE,
    Action,
    Answer,
    Answered,
    Began,
    ChooseDraft,
    DraftChosen,
    Finish,
    Kill,
    KillAsked,
    MarkBad,
    Message,
    Note,
    PauseAsked,
    Probe,
    RestartAsked,
    Serve,
    Spawn,
    StopAsked,
    Swap,
    Tell,
    Terminate,
    Tick,
    Told,
    TrainAsked,
    UseAsked,
)
from tide_cli.supervisor.new_core import new_core
from tide_cli.supervisor.notify import Notifier
from tide_cli.supervisor.processes import Processes
from tide_cli.supervisor.recording import Recorder, take_history
from tide_cli.supervisor.specs import Workshop
from tide_cli.supervisor.status import make_status
from tide_cli.supervisor.taken_back import find_taken_back
from tide_cli.supervisor.tickets import Tickets
from tide_cli.supervisor.unserved import find_unserved
from tide_cli.supervisor.watchers import Engine, Watchers
from tide_cli.telemetry.exporter import Exporter, Tally
from tide_cli.telemetry.totals import held_out_samples, spool_totals

_LONGEST_WAIT = 1.0  # seconds without a message after which the status is made anew
_MOST_ROWS = 4000  # of the history, given out at once: a small process stays one
_RECENT = 50  # events kept at hand for the status


class Supervisor:
    """Runs the children of one appliance. The caller holds the state lock and has checked port and leftovers.

    in_place: whether its state folder is still there; on_event is called in the loop with each row of the events table.
    """

    def __init__(
        self,
        workshop: Workshop,
        engine: Engine,
        in_place: Callable[[], bool],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        settings, self._paths = workshop.settings, workshop.paths
        self._workshop = workshop
        self._in_place, self._on_event = in_place, on_event
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()  # its put may be called by a signal handler
        self._journal = Journal(self._paths.database)
        self._recent: deque[dict[str, Any]] = deque(read_events(self._paths.database, newest=_RECENT), maxlen=_RECENT)
        self.core = new_core(workshop)
        recorder = Recorder(self._paths, self.status, lambda text: self._queue.put(Told("history", text)))
        self._watchers = Watchers(engine, self._paths, workshop.plan, self._queue.put, settings.hang_timeout, recorder)
        self._processes = Processes(workshop, self._queue.put)
        self._tickets = Tickets(self._queue.put)
        self._begun = time.time()
        self._versions = VersionRows(DraftStore(self._paths.drafts))
        self._notifier = Notifier(settings.on_event, self._paths, lambda text: self._queue.put(Told(notify.NAME, text)))
        self._tally = Tally()
        self.exporter = Exporter(self.status, self._tally, list(State))
        self._status: dict[str, Any] = {}
        self._stop_signals = 0
        self._watched = 0  # generation of the engine that is looked after
        self._tidy_due = False  # a swap was confirmed, after which there may be a version too many
        self._tidying: threading.Thread | None = None
        self._refresh()

    # --- orders, from any thread

    def status(self) -> dict[str, Any]:
        """What `tide status --json` prints; made by the loop, at most a second old. The spool's counters are of now: a
        request that has just ended is expected among them."""
        totals = spool_totals(self._paths.spool)
        return self._status | ({"spool": {"fill": None} | self._status["spool"] | totals} if totals else {})

    def events(self, after: int, newest: int | None) -> list[dict[str, Any]]:
        """Rows of the events table in order of time."""
        return read_events(self._paths.database, after=after, newest=newest)

    def history(self, since: float, step: str) -> dict[str, Any]:
        """The last `since` seconds in a bounded number of rows; see `take_history`."""
        return take_history(self._paths, since, step, _MOST_ROWS)

    def metrics(self) -> bytes:
        """TIDE's own, in Prometheus' text format."""
        return self.exporter.page()

    def stop(self, by: str) -> None:
        self._queue.put(StopAsked(by, self._requests()))

    def kill(self) -> None:
        self._queue.put(KillAsked())

    def stop_signal(self, *_: object) -> None:
        """A signal handler: the first one stops in order, the next one kills."""
        self._stop_signals += 1
        first = self._stop_signals == 1
        self._queue.put(StopAsked("interrupted", self._requests()) if first else KillAsked())

    def _requests(self) -> int | None:
        """Those that run or wait in the engine, a second ago; None where it does not say."""
        figures = self._watchers.seen.figures
        return None if figures is None else figures.running + figures.queued

    def train_now(self) -> str:
        """Start a training cycle. Raises TideError where none can begin, or its draft could not be judged."""
        held_out = held_out_samples(self._paths.spool, MINIMUM_SAMPLES)
        if self.core.trains and held_out < MINIMUM_SAMPLES:
            found = many(held_out, "held-out sample")
            raise TideError(
                "no training cycle has begun",
                why=f"the spool has {found}, and the gate needs {MINIMUM_SAMPLES} to judge a draft",
                remedy="send some requests first",
            )
        return self._tickets.ask(TrainAsked, "no training cycle has begun")

    def pause_training(self, pause: bool) -> str:
        """Let no cycle begin, or let them begin again. Raises TideError where there is no training."""
        return self._tickets.ask(lambda ticket: PauseAsked(ticket, pause), "nothing has changed")

    def restart(self, children: list[str]) -> str:
        """Start children anew, in order. Raises TideError where that cannot be done now."""
        return self._tickets.ask(lambda ticket: RestartAsked(ticket, tuple(children)), "nothing is restarted")

    def use_draft(self, version: int) -> str:
        """Swap to a version of the store. Raises TideError where it is missing, damaged or refused."""
        store = DraftStore(self._paths.drafts)
        if version not in store.versions():
            raise TideError(f"there is no draft {version_name(version)}", remedy="`tide drafts ls` lists them")
        store.verify(version)
        return self._tickets.ask(lambda ticket: UseAsked(ticket, version), f"{version_name(version)} is not served")

    def note(self, kind: str, text: str) -> None:
        """An event of the way up; before `run` only."""
        self._note(Note(kind, text))

    # --- the loop

    def run(self) -> int:
        """Until everything has ended; returns the exit code. For the main thread: children live as long as it does."""
        self._watchers.start()
        self._queue.put(Began())
        looked = time.monotonic()
        try:
            while not self.core.finished:
                message = self._next()
                if time.monotonic() - looked > SLEPT:
                    self.core.learning.slept(time.monotonic())
                looked = time.monotonic()
                if isinstance(message, Answered):
                    message = Answered(message.generation, self._processes.start_seconds())
                for action in self.core.handle(message, time.monotonic()):
                    self._carry_out(action)
                self._tidy()
                if not (self.core.stopping or self._in_place()):
                    # nobody could reach it any more, and another one may begin in that place
                    self.stop("its state folder was removed, moved or emptied")
                self._refresh()
        finally:
            self._watchers.close()
            self._notifier.close()
            self._tickets.close()
            self._journal.close()
        return self.core.exit_code

    def _next(self) -> Message:
        deadline = self.core.next_deadline()
        wait = _LONGEST_WAIT if deadline is None else min(_LONGEST_WAIT, max(0.0, deadline - time.monotonic()))
        try:
            return self._queue.get(timeout=wait)
        except queue.Empty:
            return Tick()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Spawn(child, generation):
                self._spawn(child, generation)
            case ChooseDraft():
                self._queue.put(self._choose_draft())
            case Probe(generation):
                self._watchers.probe(generation)
            case Tell(command):
                self._processes.tell_trainer(self._write(lambda: with_figures(command, self._paths)) or command)
            case Terminate(child):
                self._processes.terminate(child)
            case Kill(child):
                self._processes.kill(child)
            case Swap(version, generation):
                self._watchers.swap(version, generation)
            case Serve(version):
                self._write(lambda: self._journal.serve(version))
            case MarkBad(version, reason):
                self._mark_bad(version, reason)
            case Note():
                self._note(action)
                # at a start nothing goes: versions that only a later keep_drafts has made too many can be pinned first
                self._tidy_due |= action.kind == "swap"
            case Answer(ticket, ok, text):
                self._tickets.answer(ticket, ok, text)
            case Finish():
                if self._in_place():  # else the record is another appliance's
                    self._processes.record(ended=True)

    def _spawn(self, child: str, generation: int) -> None:
        pid = self._processes.start(child, generation, self.core.learning.served)
        if pid is not None:
            self._note(Note("started", f"{child} started (pid {pid})", {"pid": pid, "generation": generation}))

    def _choose_draft(self) -> DraftChosen:
        try:
            self._workshop.check_spool()
            left = find_taken_back(self._paths.database)
            version = self._workshop.draft_to_serve(left.previous if left else None)
            passed = find_unserved(DraftStore(self._paths.drafts), self._paths.database, version)
        except TideError as error:
            return DraftChosen(None, "\n".join(error.lines()))
        if left is not None and version == left.previous:
            return DraftChosen(version, passed=passed, taken_back=left.version, reason=left.reason)
        return DraftChosen(version, passed=passed)

    def _note(self, note: Note) -> None:
        event = {"id": None, "time": time.time(), "kind": note.kind, "text": note.text, "data": dict(note.data)}
        event = self._write(lambda: self._journal.note(note.kind, note.text, note.data)) or event
        self._recent.append(event)
        self._tally.count(note.kind, note.data)
        self._notifier.tell(event)
        self._on_event(event)

    def _write(self, write: Callable[[], Any]) -> Any:
        """A full disk costs rows of the journal, never the serving."""
        try:
            return write()
        except (sqlite3.Error, OSError, TideError):
            return None

    def _tidy(self) -> None:
        """Keep the number of versions within its bound after a swap, on a thread: a version may be a gigabyte."""
        under_way = self._tidying is not None and self._tidying.is_alive()
        if not self._tidy_due or under_way or self.core.versions_in_use() is None:
            return
        self._tidy_due = False

        def work() -> None:
            if told := tidy(self._paths, self._workshop.settings.keep_drafts, self.core.versions_in_use):
                self._queue.put(told)
            self._tidy_due |= self.core.versions_in_use() is None  # it may have come to a halt

        self._tidying = threading.Thread(target=work, name="tidy", daemon=True)
        self._tidying.start()

    def _mark_bad(self, version: int, why: str) -> None:
        """On a thread: the swap back does not wait for whoever changes the store just now."""

        def work() -> None:
            if told := mark_bad(self._paths, version, why):
                self._queue.put(told)

        threading.Thread(target=work, name=f"mark-{version}", daemon=True).start()

    def _watch_engine(self) -> None:
        """Have the engine looked after while it is up: from here, because every way up or down leads past here."""
        engine = self.core.children[ENGINE]
        if not engine.up:
            self._watchers.unwatch()
            self._watched = 0
        elif self._watched != engine.generation:
            self._watched = engine.generation
            self._watchers.watch(engine.generation, self._processes.engine_answers())

    def _refresh(self) -> None:
        self._watch_engine()
        now = time.monotonic()
        self._status = make_status(
            self._workshop,
            self.core,
            self._processes.pids(self.core.children),
            self._watchers.seen,
            self._processes.phases(self.core.children, now),
            self._versions.newest(),
            list(self._recent),
            self._begun,
            now,
        )
