"""The processes of an appliance by the name of the child: started, told, ended, and written down for a later one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tide_cli.errors import TideError, reason
from tide_cli.supervisor.causes import explain
from tide_cli.supervisor.engine_start import EngineStart
from tide_cli.supervisor.leftovers import record_children
from tide_cli.supervisor.lifecycle import Child, State
from tide_cli.supervisor.logs import last_said, read_tail
from tide_cli.supervisor.messages import DRAFT, ENGINE, TARGET, TRAINER, Exited, Message, TrainerSaid
from tide_cli.supervisor.process import ChildProcess
from tide_cli.supervisor.procfs import memory_kills
from tide_cli.supervisor.specs import Workshop

_SAID = 4096  # bytes of a log's end in which a child that prepares something says how far it is


class Processes:
    """For the loop's thread, which lives as long as they do. put: takes their news, from any thread."""

    def __init__(self, workshop: Workshop, put: Callable[[Message], None]) -> None:
        self._workshop, self._put = workshop, put
        self._running: dict[str, ChildProcess] = {}  # or ended: until the next one of that name
        self._engine_start: EngineStart | None = None

    def start(self, child: str, generation: int, served: int | None) -> int | None:
        """Its pid; None where it cannot be started: then its end is news at once. served: version of the draft."""
        killed_before = memory_kills()

        def on_exit(code: int, tail: str) -> None:
            ending = explain(tail, code, child, oom=memory_kills() > killed_before)
            self._put(Exited(child, generation, code, ending.words, ending.explained, ending.final, ending.excerpt))

        def on_event(event: dict[str, Any]) -> None:
            self._put(TrainerSaid(generation, event))

        try:
            spec = self._workshop.spec(child, served)
            process = ChildProcess(spec, on_exit, on_event)
        except (TideError, OSError) as error:
            self._running.pop(child, None)
            place = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            words = "\n".join(error.lines()) if isinstance(error, TideError) else place + reason(error)
            self._put(Exited(child, generation, 1, words))
            return None
        self._running[child] = process
        if child == ENGINE:
            self._engine_start = EngineStart(spec.log, process.log_start)
        self.record()
        return process.pid

    def tell_trainer(self, command: Mapping[str, Any]) -> None:
        """One that has ended hears nothing, likewise below."""
        if TRAINER in self._running:
            self._running[TRAINER].tell(command)

    def terminate(self, child: str) -> None:
        if child in self._running:
            self._running[child].terminate()

    def kill(self, child: str) -> None:
        if child in self._running:
            self._running[child].kill()

    def engine_answers(self) -> ChildProcess:
        """The engine, which has become ready: on its own cores from now on, and known with all its parts."""
        engine = self._running[ENGINE]
        engine.settle()
        engine.note_parts()
        self.record()
        return engine

    def record(self, *, ended: bool = False) -> None:
        """Write down what runs, or that all have ended. A full disk costs the record, never the serving."""
        children = {} if ended else {name: process.stat for name, process in self._running.items()}
        tables = {table for process in self._running.values() for table in process.shared_memory}
        with suppress(OSError):
            record_children(self._workshop.paths.run / "children.json", children, tables)

    def pids(self, children: Mapping[str, Child]) -> dict[str, int]:
        """Of those that are alive."""
        return {name: process.pid for name, process in self._running.items() if children[name].alive}

    def phases(self, children: Mapping[str, Child], now: float) -> dict[str, dict[str, Any] | None]:
        """Of each that is starting: name, words and seconds; None where it does not say. now: a monotonic second."""
        starting = [child for child in children.values() if child.state is State.STARTING]
        return {child.name: self._phase(child.name, round(now - child.since, 1)) for child in starting}

    def start_seconds(self) -> dict[str, float]:
        """Each phase of the engine's start so far; empty before the first."""
        return self._engine_start.seconds() if self._engine_start else {}

    def _phase(self, child: str, seconds: float) -> dict[str, Any] | None:
        if child == ENGINE:
            return self._engine_start.phase() if self._engine_start else None
        process = self._running.get(child) if child in (TARGET, DRAFT) else None
        log = self._workshop.paths.logs / f"{child}.log"
        said = last_said(read_tail(log, process.log_start, _SAID)) if process else None
        return {"name": "files", "words": said, "seconds": seconds} if said else None
