"""Runs the passes of a matrix on appliances that it starts and ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tide_cli.bench.client import Answer, run, send_all
from tide_cli.bench.engines import Appliance, running
from tide_cli.bench.figures import pass_figures
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.matrix import Load, MatrixPlan, Pass, order
from tide_cli.bench.matrix_plan import mode_settings, recorded
from tide_cli.bench.observe import Observer
from tide_cli.bench.requests import Request, poisson_arrivals
from tide_cli.bench.results import Results
from tide_cli.bench.scratch import scratch_folder
from tide_cli.dashboard.words import duration
from tide_cli.errors import TideError, UsageError
from tide_cli.printable import many
from tide_cli.settings import Settings
from tide_cli.supervisor.appliance import check_settings

_WARM_UP_TOKENS = 16
_SPARE = 0.8  # part of the free memory that further engines may take

Say = Callable[[str], None]
Tick = Callable[[float, float], None]


def run_matrix(
    plan: MatrixPlan, requests: Sequence[Request], results: Results, config: Path | None, say: Say, tick: Tick
) -> None:
    """Measure every pass that `results` lacks and add it there. say: gets a line for each; tick: (done, of all).

    However it ends, no process and no folder of it is left. Raises TideError, and KeyboardInterrupt for a signal.
    """
    done = {Pass.from_json(part).key for part in results.parts}
    wanted = set(order(plan, together=True)) - done
    if not wanted:
        return
    with Interrupts() as interrupts, scratch_folder() as folder:
        modes = [mode for mode in plan.modes if any(key[1] == mode for key in wanted)]
        settings = {mode: mode_settings(folder, mode, plan, config) for mode in modes}
        _check_unchanged(plan, settings)
        devices = {check_settings(one).plan.serve.device for one in settings.values()}
        with _Engines(settings, requests, interrupts, say) as engines:
            keys = [key for key in order(plan, together=False) if key in wanted]
            engines.get(keys[0][1])
            if devices == {"cpu"} and engines.fit_together():
                keys = [key for key in order(plan, together=True) if key in wanted]
                for mode in modes:  # an engine without work costs the others a little: no pass is spared that
                    engines.get(mode)
            clock = _Clock(len(keys))
            for place, (number, mode, load) in enumerate(keys):
                appliance = engines.get(mode)
                clock.begin()
                with interrupts.allowed():
                    appliance.flush_cache()
                    answers, observed = _measure(
                        appliance, plan, requests, load, partial(_tell, tick, place, len(keys))
                    )
                measured = Pass(number, mode, load, tuple(answers), observed)
                results.add(measured.to_json())
                say(f"round {number + 1} of {plan.rounds}, {mode} at {load.words()}: {_words(answers)}; {clock.end()}")


def _check_unchanged(plan: MatrixPlan, settings: Mapping[str, Settings]) -> None:
    """UsageError where a pass would be measured under other settings than those that were planned with."""
    now = {mode: recorded(one) for mode, one in settings.items()}
    changed = [
        f"{name} of {mode} was {plan.settings[mode].get(name)} and is {value}"
        for mode in now
        for name, value in now[mode].items()
        if plan.settings[mode].get(name) != value
    ]
    if changed:
        raise UsageError(
            "the settings have changed since the measurement began",
            why="; ".join(changed),
            remedy="give the same ones, from --config and TIDE_*, or measure anew, without --resume",
        )


class _Engines:
    """The appliances by mode: as many at once as the machine holds, started when they are first asked for."""

    def __init__(
        self, settings: Mapping[str, Settings], requests: Sequence[Request], interrupts: Interrupts, say: Say
    ) -> None:
        self._settings, self._requests, self._interrupts, self._say = settings, requests, interrupts, say
        self._running: dict[str, Appliance] = {}
        self._stack = ExitStack()
        self._several = False

    def __enter__(self) -> _Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def get(self, mode: str) -> Appliance:
        """The appliance of a mode, ready and warm. Raises TideError."""
        if mode not in self._running:
            if self._running and not self._several:
                self._end()
            self._say(f"starting the engine for {mode}")
            appliance = self._stack.enter_context(running(self._settings[mode], self._interrupts))
            with self._interrupts.allowed():
                try:
                    appliance.wait_until_ready()
                except TideError as error:
                    error.what = f"the engine for {mode} does not start: {error.what}"
                    if "tide logs" in (error.remedy or ""):
                        error.remedy = None  # its folder goes
                    raise
                self._warm(appliance)
            self._running[mode] = appliance
        return self._running[mode]

    def fit_together(self) -> bool:
        """Whether there is memory for all of them at once, judged by the one that stands; from now on they do."""
        (appliance,) = self._running.values()
        needed = appliance.memory() * (len(self._settings) - 1)
        self._several = needed < _SPARE * psutil.virtual_memory().available
        return self._several

    def _warm(self, appliance: Appliance) -> None:
        """The first requests of an engine's life are slower than all later ones."""
        few = [Request(one.messages, _WARM_UP_TOKENS) for one in self._requests[:4]]
        run(send_all(appliance.url, appliance.model, few, concurrency=2))

    def _end(self) -> None:
        self._running.clear()
        self._stack.close()


def _tell(tick: Tick, place: int, passes: int, share: float) -> None:
    tick(place + share, passes)


def _measure(
    appliance: Appliance, plan: MatrixPlan, requests: Sequence[Request], load: Load, answered: Callable[[float], None]
) -> tuple[list[Answer], dict[str, Any]]:
    count = 0

    def on_answer(answer: Answer) -> None:
        nonlocal count
        count += 1
        answered(count / len(requests))

    arrivals = poisson_arrivals(len(requests), load.rate, plan.seed) if load.rate else None
    with Observer(appliance) as observer:
        answers = run(
            send_all(
                appliance.url,
                appliance.model,
                requests,
                concurrency=load.concurrency,
                arrivals=arrivals,
                on_answer=on_answer,
                captured=appliance.settings.capture,
                timeout=plan.timeout,
            )
        )
    return answers, observer.result(answers)


def _words(answers: Sequence[Answer]) -> str:
    figures = pass_figures(answers)
    words = "no answer" if figures["output_tok_s"] is None else f"{figures['output_tok_s']:.1f} tok/s"
    if figures["acceptance_length"] is not None:
        words += f", acceptance length {figures['acceptance_length']:.2f}"
    return words + (f", {many(figures['errors'], 'error')}" if figures["errors"] else "")


class _Clock:
    """How long the passes that remain will take, if they are like those before."""

    def __init__(self, passes: int) -> None:
        self._passes, self._spent = passes, 0.0
        self._ended = 0
        self._begun = 0.0

    def begin(self) -> None:
        self._begun = time.monotonic()

    def end(self) -> str:
        """After a pass: how many are done, and what remains, in words."""
        self._spent += time.monotonic() - self._begun
        self._ended += 1
        words = f"{self._ended} of {many(self._passes, 'pass')}"
        left = self._passes - self._ended
        return f"{words}, about {duration(self._spent / self._ended * left)} left" if left else words
