"""A running appliance: one loop that takes a message, asks the core, and carries out what it decided."""

from __future__ import annotations

import itertools
import queue
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tide_cli.adaptation.drift import DriftRules
from tide_cli.adaptation.gate import MINIMUM_SAMPLES
from tide_cli.adaptation.rollback import RollbackRules
from tide_cli.adaptation.trigger import TriggerRules
from tide_cli.drafts.describe import VersionRows
from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.errors import TideError, reason
from tide_cli.printable import many
from tide_cli.supervisor import notify
from tide_cli.supervisor.causes import explain
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.engine_start import EngineStart
from tide_cli.supervisor.journal import Journal, read_events, was_cut_short, was_paused
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.leftovers import record_children
from tide_cli.supervisor.lifecycle import Limits, RestartPolicy, State
from tide_cli.supervisor.logs import last_said, read_tail
from tide_cli.supervisor.messages import (
    DRAFT,
    ENGINE,
    TARGET,
    TRAINER,
    Action,
    Answer,
    Answered,
    Began,
    ChooseDraft,
    DraftChosen,
    Exited,
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
    TrainerSaid,
    UseAsked,
)
from tide_cli.supervisor.notify import Notifier
from tide_cli.supervisor.performance import Performance
from tide_cli.supervisor.process import ChildProcess
from tide_cli.supervisor.procfs import ProcessStat, memory_kills
from tide_cli.supervisor.recording import Recorder, take_history
from tide_cli.supervisor.specs import Workshop
from tide_cli.supervisor.status import make_status
from tide_cli.supervisor.watchers import Engine, Watchers
from tide_cli.telemetry.exporter import Exporter, Tally
from tide_cli.telemetry.totals import held_out_samples, spool_totals

_LONGEST_WAIT = 1.0  # seconds without a message after which the status is made anew
_MOST_ROWS = 4000  # of the history, given out at once: a small process stays one
_RECENT = 50  # events kept at hand for the status
_SAID = 4096  # bytes of a log's end in which a child that prepares something says how far it is
_ANSWER_WITHIN = 120.0  # seconds the holder of a ticket waits


class Supervisor:
    """Runs the children of one appliance. The caller holds the state lock and has checked port and leftovers.

    on_event is called in the loop with each row of the events table.
    """

    def __init__(self, workshop: Workshop, engine: Engine, on_event: Callable[[dict[str, Any]], None]) -> None:
        settings, self._paths = workshop.settings, workshop.paths
        self._workshop = workshop
        self._on_event = on_event
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()  # its put may be called by a signal handler
        self._journal = Journal(self._paths.database)
        self._recent: deque[dict[str, Any]] = deque(read_events(self._paths.database, newest=_RECENT), maxlen=_RECENT)
        cycles = read_events(self._paths.database, newest=1, kind="cycle")
        trained_at = cycles[0]["data"].get("tokens_total", 0) if cycles else 0
        learning = Learning(
            TriggerRules(
                settings.cycle_tokens,
                settings.cycle_every,
                max(1, settings.cycle_tokens // 4),
                most_share=settings.train_share if workshop.plan.trainer == "shared" else 1.0,
            ),
            Performance(DriftRules(settings.drift_epsilon), RollbackRules(settings.rollback_margin)),
            trained_at,
            paused=was_paused(self._paths.database),
            cut_short=was_cut_short(self._paths.database),
            pool=settings.draft_pool,
        )
        trains = workshop.plan.train is not None  # the settings may ask for it where no device has room
        limits = Limits(
            settings.start_timeout,
            settings.stop_timeout,
            settings.hang_timeout,
            RestartPolicy(limit=settings.restart_limit),
        )
        self.core = Core(workshop.steps(), trains, limits, learning)
        recorder = Recorder(self._paths, self.status, lambda text: self._queue.put(Told("history", text)))
        self._watchers = Watchers(engine, self._paths, workshop.plan, self._queue.put, settings.hang_timeout, recorder)
        self._processes: dict[str, ChildProcess] = {}
        self._tickets = itertools.count(1)
        self._waiting: dict[int, Future[tuple[bool, str]]] = {}
        self._engine_start: EngineStart | None = None
        self._begun = time.time()
        self._versions = VersionRows(DraftStore(self._paths.drafts))
        self._notifier = Notifier(settings.on_event, self._paths, lambda text: self._queue.put(Told(notify.NAME, text)))
        self._tally = Tally()
        self.exporter = Exporter(self.status, self._tally, list(State))
        self._status: dict[str, Any] = {}
        self._stop_signals = 0
        self._watched = 0  # generation of the engine that is looked after
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
        self._queue.put(StopAsked(by))

    def kill(self) -> None:
        self._queue.put(KillAsked())

    def stop_signal(self, *_: object) -> None:
        """A signal handler: the first one stops in order, the next one kills."""
        self._stop_signals += 1
        self._queue.put(StopAsked("interrupted") if self._stop_signals == 1 else KillAsked())

    def train_now(self) -> str:
        """Start a training cycle. Raises TideError where none can begin, or its draft could not be judged."""
        held_out = held_out_samples(self._paths.spool)
        if self.core.trains and held_out < MINIMUM_SAMPLES:
            found = many(held_out, "held-out sample")
            raise TideError(
                "no training cycle has begun",
                why=f"the spool has {found}, and the gate needs {MINIMUM_SAMPLES} to judge a draft",
                remedy="send some requests first",
            )
        return self._ask(TrainAsked, "no training cycle has begun")

    def pause_training(self, pause: bool) -> str:
        """Let no cycle begin, or let them begin again. Raises TideError where there is no training."""
        return self._ask(lambda ticket: PauseAsked(ticket, pause), "nothing has changed")

    def restart(self, children: list[str]) -> str:
        """Start children anew, in order. Raises TideError where that cannot be done now."""
        return self._ask(lambda ticket: RestartAsked(ticket, tuple(children)), "nothing is restarted")

    def use_draft(self, version: int) -> str:
        """Swap to a version of the store. Raises TideError where it is missing, damaged or refused."""
        store = DraftStore(self._paths.drafts)
        if version not in store.versions():
            raise TideError(f"there is no draft {version_name(version)}", remedy="`tide drafts ls` lists them")
        store.verify(version)
        return self._ask(lambda ticket: UseAsked(ticket, version), f"{version_name(version)} is not served")

    def _ask(self, message: Callable[[int], Message], refused: str) -> str:
        ticket = next(self._tickets)
        future = self._waiting[ticket] = Future()
        self._queue.put(message(ticket))
        try:
            ok, text = future.result(timeout=_ANSWER_WITHIN)
        except TimeoutError:
            raise TideError(refused, why=f"no answer within {_ANSWER_WITHIN:.0f} s") from None
        if not ok:
            raise TideError(refused, why=text)
        return text

    def note(self, kind: str, text: str) -> None:
        """An event of the way up; before `run` only."""
        self._note(Note(kind, text))

    # --- the loop

    def run(self) -> int:
        """Until everything has ended; returns the exit code. For the main thread: children live as long as it does."""
        self._watchers.start()
        self._queue.put(Began())
        try:
            while not self.core.finished:
                message = self._next()
                if isinstance(message, Answered) and self._engine_start is not None:
                    message = Answered(message.generation, self._engine_start.seconds())
                for action in self.core.handle(message, time.monotonic()):
                    self._carry_out(action)
                self._refresh()
        finally:
            self._watchers.close()
            self._notifier.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_result((False, "the appliance is ending"))
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
                if TRAINER in self._processes:
                    self._processes[TRAINER].tell(command)
            case Terminate(child):
                if child in self._processes:
                    self._processes[child].terminate()
            case Kill(child):
                if child in self._processes:
                    self._processes[child].kill()
            case Swap(version, generation):
                self._watchers.swap(version, generation)
            case Serve(version):
                self._write(lambda: self._journal.serve(version))
            case MarkBad(version, reason):
                self._write(lambda: DraftStore(self._paths.drafts).mark_bad(version, reason))
            case Note():
                self._note(action)
            case Answer(ticket, ok, text):
                self._waiting.pop(ticket).set_result((ok, text))
            case Finish():
                self._record({})

    def _spawn(self, child: str, generation: int) -> None:
        killed_before = memory_kills()

        def on_exit(code: int, tail: str) -> None:
            ending = explain(tail, code, child, oom=memory_kills() > killed_before)
            self._queue.put(
                Exited(child, generation, code, ending.words, ending.explained, ending.final, ending.excerpt)
            )

        def on_event(event: dict[str, Any]) -> None:
            self._queue.put(TrainerSaid(generation, event))

        try:
            spec = self._workshop.spec(child, self.core.learning.served)
            process = ChildProcess(spec, on_exit, on_event)
        except (TideError, OSError) as error:
            self._processes.pop(child, None)
            words = "\n".join(error.lines()) if isinstance(error, TideError) else reason(error)
            self._queue.put(Exited(child, generation, 1, words))
            return
        self._processes[child] = process
        if child == ENGINE:
            self._engine_start = EngineStart(spec.log, process.log_start)
        self._note(
            Note("started", f"{child} started (pid {process.pid})", {"pid": process.pid, "generation": generation})
        )
        self._record({name: p.stat for name, p in self._processes.items()})

    def _choose_draft(self) -> DraftChosen:
        try:
            self._workshop.check_spool()
            return DraftChosen(self._workshop.draft_to_serve())
        except TideError as error:
            return DraftChosen(None, "\n".join(error.lines()))

    def _note(self, note: Note) -> None:
        event = {"id": None, "time": time.time(), "kind": note.kind, "text": note.text, "data": dict(note.data)}
        event = self._write(lambda: self._journal.note(note.kind, note.text, note.data)) or event
        self._recent.append(event)
        self._tally.count(note.kind, note.data)
        self._notifier.tell(event)
        self._on_event(event)

    def _record(self, children: dict[str, ProcessStat | None]) -> None:
        tables = {table for process in self._processes.values() for table in process.load_tables}
        self._write(lambda: record_children(self._paths.run / "children.json", children, tables))

    def _write(self, write: Callable[[], Any]) -> Any:
        """A full disk costs rows of the journal and the record of the children, never the serving."""
        try:
            return write()
        except (sqlite3.Error, OSError, TideError):
            return None

    def _watch_engine(self) -> None:
        """Have the engine looked after while it is up: from here, because every way up or down leads past here."""
        engine = self.core.children[ENGINE]
        if not engine.up:
            self._watchers.unwatch()
            self._watched = 0
        elif self._watched != engine.generation:
            self._watched = engine.generation
            self._processes[ENGINE].settle()
            self._processes[ENGINE].note_parts()
            self._record({name: process.stat for name, process in self._processes.items()})
            self._watchers.watch(engine.generation, self._processes[ENGINE])

    def _refresh(self) -> None:
        children = self.core.children
        self._watch_engine()
        self._status = make_status(
            self._workshop,
            self.core,
            {name: process.pid for name, process in self._processes.items() if children[name].alive},
            self._watchers.seen,
            {name: self._phase(name) for name in children if children[name].state == "STARTING"},
            self._versions.newest(),
            list(self._recent),
            self._begun,
            time.monotonic(),
        )

    def _phase(self, child: str) -> dict[str, Any] | None:
        """Of a child that is starting: name, words and seconds; None where it does not say."""
        if child == ENGINE:
            return self._engine_start.phase() if self._engine_start else None
        process = self._processes.get(child) if child in (TARGET, DRAFT) else None
        said = last_said(read_tail(self._paths.logs / f"{child}.log", process.log_start, _SAID)) if process else None
        seconds = round(time.monotonic() - self.core.children[child].since, 1)
        return {"name": "files", "words": said, "seconds": seconds} if said else None
