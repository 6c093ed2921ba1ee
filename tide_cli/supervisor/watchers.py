"""The threads that wait for slow answers, so that the loop never does: first token, swap, figures and totals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tide_cli.errors import TideError
from tide_cli.supervisor.messages import Answered, CaptureLooked, Message, Swapped, Totals
from tide_cli.telemetry.figures import EngineFigures, engine_figures
from tide_cli.telemetry.prometheus import parse_page
from tide_cli.telemetry.totals import spool_totals

_PROBE_EVERY = 1.0  # seconds between two attempts at a first token
_PROBE_TIMEOUT = 60.0  # seconds one attempt may take: the first request may compile kernels
_CAPTURE_EVERY = 5  # of so many looks one asks whether capture still works: that question interrupts the engine
_LOOK_EVERY = 2.0  # seconds between two looks at figures and totals


class Engine(Protocol):
    """The part of `EngineClient` that is used here."""

    def first_token(self, timeout: float) -> str: ...
    def swap(self, version: int) -> object: ...
    def metrics_text(self) -> str: ...
    def tide_states(self) -> list[dict[str, Any]]: ...


class Watchers:
    """Starts the threads; `post` puts a message on the loop's queue. All of them end soon after `close`."""

    def __init__(self, engine: Engine, spool: Path, post: Callable[[Message], None]) -> None:
        self._engine, self._spool, self._post = engine, spool, post
        self._closed = threading.Event()
        self._probed = 0  # generation of the engine that is being waited for
        self.figures: EngineFigures | None = None
        self.engine_ready = False

    def start(self) -> None:
        """Begin to look at figures and totals."""
        threading.Thread(target=self._look, name="look", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def probe(self, generation: int) -> None:
        """Ask for a token until one comes, or until another start of the engine is waited for."""
        self._probed = generation
        threading.Thread(target=self._probe, args=(generation,), name=f"probe-{generation}", daemon=True).start()

    def swap(self, version: int, generation: int) -> None:
        """Ask the engine to take a draft; its answer becomes a Swapped message."""
        threading.Thread(target=self._swap, args=(version, generation), name=f"swap-{version}", daemon=True).start()

    def _probe(self, generation: int) -> None:
        while not self._closed.wait(_PROBE_EVERY) and self._probed == generation:
            try:
                self._engine.first_token(_PROBE_TIMEOUT)
            except Exception:  # whatever the reason, the engine is not ready; why it never becomes so is in its log
                continue
            self._post(Answered(generation))
            return

    def _swap(self, version: int, generation: int) -> None:
        try:
            self._engine.swap(version)
        except Exception as error:  # an order without an answer would leave the learning loop waiting for ever
            reason = "; ".join(error.lines()) if isinstance(error, TideError) else f"{type(error).__name__}: {error}"
            self._post(Swapped(version, generation, reason))
        else:
            self._post(Swapped(version, generation))

    def _look(self) -> None:
        looks = 0
        while not self._closed.wait(_LOOK_EVERY):
            looks += 1
            if self.engine_ready and looks % _CAPTURE_EVERY == 0:
                self._look_at_capture()
            if totals := spool_totals(self._spool):
                self._post(Totals(totals))
            self.figures = self._engine_figures() if self.engine_ready else None

    def _look_at_capture(self) -> None:
        try:
            states = self._engine.tide_states()
        except Exception:  # no answer is no news of the capture
            return
        failures = [state["capture"]["failure"] for state in states if "failure" in (state.get("capture") or {})]
        self._post(CaptureLooked(failures[0] if failures else None))

    def _engine_figures(self) -> EngineFigures | None:
        try:
            return engine_figures(parse_page(self._engine.metrics_text()))
        except Exception:  # figures are for the eye only
            return None
