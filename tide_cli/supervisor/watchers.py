"""The threads that wait for slow answers, so that the loop never does: first token, swap, figures and totals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tide_cli.adaptation.gate import MINIMUM_SAMPLES
from tide_cli.errors import TideError, reason
from tide_cli.hardware.plan import Plan
from tide_cli.paths import Paths
from tide_cli.supervisor.heartbeat import SLEPT, Heartbeat
from tide_cli.supervisor.logs import bound_log
from tide_cli.supervisor.messages import (
    ENGINE,
    Answered,
    Broken,
    CaptureLooked,
    Message,
    Observed,
    Pulse,
    Speculates,
    Swapped,
    Totals,
)
from tide_cli.supervisor.process import ChildProcess
from tide_cli.telemetry.devices import DeviceMeter
from tide_cli.telemetry.figures import EngineFigures, read_engine
from tide_cli.telemetry.load import Interval, LoadMeter
from tide_cli.telemetry.totals import held_out_samples, newest_request, served_requests, spool_totals

_PROBE_EVERY = 0.25  # seconds between two attempts at a first token
_PROBE_TIMEOUT = 60.0  # seconds one attempt may take: the first request may compile kernels
_ASK_EVERY = 10  # of so many looks one asks the plugin how capture and speculation do: that interrupts the engine
_CLOSED_WITHIN = 2.0  # seconds; whoever asks an engine that hangs is not waited for
_LOOK_EVERY = 1.0  # seconds between two looks at figures and totals
_DEVICES_EVERY = 2  # of so many looks one is at the devices


class Engine(Protocol):
    """The part of `EngineClient` that is used here."""

    def first_token(self, timeout: float) -> str: ...
    def swap(self, version: int) -> object: ...
    def metrics_text(self) -> str: ...
    def speculation(self) -> dict[str, Any] | None: ...
    def measure(self) -> object: ...
    def tide_states(self, timeout: float) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Seen:
    """The latest of what is looked at from outside; None where no engine answers. load: the status field.

    interval: since the look before; fill: part of the spool that is taken; devices: the status field; answered: unix
    seconds of the last answer.
    """

    figures: EngineFigures | None = None
    load: Mapping[str, Any] | None = None
    interval: Interval | None = None
    fill: float | None = None
    devices: Sequence[Mapping[str, Any]] = ()
    answered: float | None = None


class Looker(Protocol):
    """Who is told of each look, once a second of the wall clock, and of the last; by the thread that looks."""

    def look(self, seen: Seen) -> None: ...
    def close(self) -> None: ...


class Watchers:
    """Starts the threads; `post` puts a message on the loop's queue. All of them end soon after `close`."""

    def __init__(
        self,
        engine: Engine,
        paths: Paths,
        plan: Plan,
        post: Callable[[Message], None],
        hang_timeout: float,
        looker: Looker,
    ) -> None:
        self._engine, self._paths, self._post, self._hang_timeout = engine, paths, post, hang_timeout
        self._looker = looker
        self._meter = LoadMeter()
        self._devices = DeviceMeter(plan)
        self._closed = threading.Event()
        self._probed = 0  # generation of the engine that is being waited for
        self._watched: _Watched | None = None
        self._last_request = newest_request(paths.spool)  # those before belong to another life
        self.seen = Seen()

    def start(self) -> None:
        """Begin to look at figures, totals and the size of the logs."""
        self._looking = threading.Thread(target=self._look, name="look", daemon=True)
        self._looking.start()

    def close(self) -> None:
        self._closed.set()
        self._looking.join(timeout=_CLOSED_WITHIN)

    def probe(self, generation: int) -> None:
        """Ask for a token until one comes, or until another start of the engine is waited for."""
        self._probed = generation
        threading.Thread(target=self._probe, args=(generation,), name=f"probe-{generation}", daemon=True).start()

    def watch(self, generation: int, process: ChildProcess) -> None:
        """Look after an engine that has become ready, until `unwatch` or the next one."""
        self._watched = _Watched(generation, process, Heartbeat(self._engine.first_token, self._hang_timeout))

    def unwatch(self) -> None:
        """The engine is on its way down or gone."""
        self._watched = None
        self.seen = Seen(devices=self.seen.devices)

    def swap(self, version: int, generation: int) -> None:
        """Ask the engine to take a draft; its answer becomes a Swapped message."""
        threading.Thread(target=self._swap, args=(version, generation), name=f"swap-{version}", daemon=True).start()

    def _probe(self, generation: int) -> None:
        while not self._closed.wait(_PROBE_EVERY) and self._probed == generation:
            try:
                self._engine.first_token(_PROBE_TIMEOUT)
            except Exception:  # whatever the reason, the engine is not ready; why it never becomes so is in its log
                continue
            self._measure()
            self._post(Answered(generation))
            return

    def _measure(self) -> None:
        """Round times for the speculation policy, where none are kept for this engine: a first start takes longer."""
        with suppress(Exception):  # it can be made up for at any time, `tide profile`
            state = self._engine.speculation()
            if state and state["adaptive"] and state["profile"] is None:
                self._engine.measure()

    def _swap(self, version: int, generation: int) -> None:
        try:
            self._engine.swap(version)
        except Exception as error:  # an order without an answer would leave the learning loop waiting for ever
            refusal = "; ".join(error.lines()) if isinstance(error, TideError) else reason(error)
            self._post(Swapped(version, generation, refusal))
        else:
            self._post(Swapped(version, generation))

    def _look(self) -> None:
        looks = 0
        while not self._wait_for_look():
            looks += 1
            if totals := spool_totals(self._paths.spool):
                self._post(Totals(totals, held_out_samples(self._paths.spool, MINIMUM_SAMPLES)))
            if requests := served_requests(self._paths.spool, self._last_request):
                self._last_request = requests[-1].id
                self._post(Observed(tuple(requests)))
            if watched := self._watched:
                self._look_after(watched)
                if self.seen.figures is not None and looks % _ASK_EVERY == 1:
                    self._ask_plugin(watched)
            else:
                self.seen = Seen(devices=self.seen.devices)
            if looks % _DEVICES_EVERY == 0:
                self.seen = replace(self.seen, devices=self._devices.look())
            self._looker.look(self.seen)
            for log in self._paths.logs.glob("*.log"):
                bound_log(log)
        self._looker.close()

    def _wait_for_look(self) -> bool:
        """Whether it is closed meanwhile."""
        begun = time.monotonic()
        # in the middle of each second of the wall clock: a look a little early or late is still that second's
        closed = self._closed.wait(_LOOK_EVERY - (time.time() + _LOOK_EVERY / 2) % _LOOK_EVERY)
        if time.monotonic() - begun > SLEPT and (watched := self._watched):
            watched.heartbeat.slept()
        return closed

    def _ask_plugin(self, watched: _Watched) -> None:
        """What the plugin reports of capture and speculation."""
        try:
            states = self._engine.tide_states(timeout=5.0)
        except Exception:  # no answer is no news
            return
        failures = [state["capture"]["failure"] for state in states if "failure" in (state.get("capture") or {})]
        self._post(CaptureLooked(failures[0] if failures else None))
        state = states[0] if states else {}
        speculation = state.get("speculation")
        version = {"draft_version": state.get("draft_version")}
        self._post(Speculates(watched.generation, speculation | version if speculation else None))
        if self._watched is watched:
            self.seen = replace(self.seen, fill=state.get("fill"))

    def _look_after(self, watched: _Watched) -> None:
        if lost := watched.process.lost_parts():
            self._post(Broken(ENGINE, watched.generation, " and ".join(lost)))
            return
        try:
            figures, counters = read_engine(self._engine.metrics_text())
        except Exception:  # whatever the reason; the silence grows, and is what counts
            figures = counters = None
        self._post(Pulse(watched.generation, watched.heartbeat.silence(counters.events if counters else None)))
        if figures is None or self._watched is not watched:
            self.seen = Seen(devices=self.seen.devices, answered=self.seen.answered)
            return
        interval = self._meter.look(figures, counters, time.monotonic())
        load = self._meter.load(figures)
        self.seen = replace(self.seen, figures=figures, load=load, interval=interval, answered=time.time())


@dataclass(frozen=True)
class _Watched:
    generation: int
    process: ChildProcess
    heartbeat: Heartbeat
