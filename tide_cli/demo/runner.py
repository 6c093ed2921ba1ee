"""The demo from beginning to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.bench.engines import Appliance, running, state_folder
from tide_cli.bench.interrupts import Interrupts
from tide_cli.demo.appliance import demo_settings, differences
from tide_cli.demo.chat import ChatClient
from tide_cli.demo.measure import compare
from tide_cli.demo.report import DemoResult
from tide_cli.demo.screen import Screen
from tide_cli.demo.traffic import Traffic
from tide_cli.errors import TideError
from tide_cli.printable import many
from tide_cli.workload.generator import generated_workload
from tide_cli.workload.jsonl import file_workload
from tide_cli.workload.prompt import Workload

_MEASURED_PROMPTS = 12
_MAX_TOKENS = 96  # of each answer, in traffic and measuring alike
_ROUNDS = 3  # of measuring two drafts
_SEED = 0
_SETTLED = 6.0  # seconds without training after which none begins any more: the spool is looked at every 2 s


@dataclass(frozen=True)
class DemoOptions:
    """minutes: of traffic, at most; the others as on the command line."""

    minutes: float
    workload: Path | None
    concurrency: int
    keep: bool
    state_dir: Path | None

    @property
    def stays(self) -> bool:
        """Whether the state folder outlives the demo."""
        return self.keep or self.state_dir is not None


def run_demo(options: DemoOptions, screen: Screen) -> DemoResult:
    """Start an appliance, send traffic until a better draft is deployed, measure both drafts, end the appliance.

    Nothing it started is left behind, whether it returns or raises. Raises TideError or UsageError, and
    KeyboardInterrupt where a signal ended it.
    """
    if options.workload is None:
        workload = generated_workload(_SEED, _MEASURED_PROMPTS)
    else:
        workload = file_workload(options.workload, _SEED, _MEASURED_PROMPTS)
    try:
        return _run_on_appliance(options, workload, screen)
    except TideError as error:
        if "tide logs" in (error.remedy or "") and not options.stays:
            error.remedy = "`tide demo --keep` keeps the logs"
        raise


def _run_on_appliance(options: DemoOptions, workload: Workload, screen: Screen) -> DemoResult:
    begun = time.monotonic()
    with Interrupts() as interrupts, state_folder(options.state_dir, options.keep, "tide-demo-") as folder:
        settings = demo_settings(folder, options.concurrency)
        engine = f"http://{settings.host}:{settings.port}"
        with closing(ChatClient(engine, settings.target, options.concurrency)) as chat:
            traffic = Traffic(chat, workload.traffic, options.concurrency, _MAX_TOKENS)
            try:
                with screen, running(settings, interrupts) as appliance, interrupts.allowed():
                    screen.say(differences(settings))
                    if options.stays:
                        screen.say(f"the state folder is {folder}, which stays")
                    try:
                        return _Demo(options, workload, appliance, chat, traffic, screen).run(begun)
                    finally:
                        traffic.stop()
                        screen.phase("ending engine and trainer")
            finally:
                traffic.drain()  # the engine has ended, and with it every request


class _Demo:
    """One run on an appliance that is coming up."""

    def __init__(
        self,
        options: DemoOptions,
        workload: Workload,
        appliance: Appliance,
        chat: ChatClient,
        traffic: Traffic,
        screen: Screen,
    ) -> None:
        self._options, self._workload = options, workload
        self._appliance, self._chat, self._traffic, self._screen = appliance, chat, traffic, screen
        self._sending = False
        self._versions: list[int] = []

    def run(self, begun: float) -> DemoResult:
        self._screen.phase("starting engine and trainer")
        self._watch(lambda status: status["state"] == "READY" and status["children"]["trainer"]["state"] == "READY")
        self._send_traffic()
        self._screen.phase("waiting until the trainer is idle, so that nothing disturbs the measuring")
        status = self._wait_for_quiet()
        versions = self._versions[:1] + self._versions[-1:] if len(self._versions) > 1 else self._versions
        prompts = self._workload.measured
        self._screen.phase(f"measuring {' and '.join(f'v{v:04d}' for v in versions)} on {many(len(prompts), 'prompt')}")
        measured = compare(
            self._chat,
            self._appliance.use_draft,
            self._appliance.flush_cache,
            versions,
            prompts,
            concurrency=self._options.concurrency,
            max_tokens=_MAX_TOKENS,
            rounds=_ROUNDS if len(versions) > 1 else 1,
            say=self._screen.say,
            progress=self._screen.progress,
        )
        gate = status["gate"]
        return DemoResult(
            versions=tuple(self._versions),
            before=measured[versions[0]],
            after=measured[versions[-1]] if len(versions) > 1 else None,
            captured_tokens=status["spool"].get("tokens", 0),
            seconds=time.monotonic() - begun,
            last_gate=str(gate.get("reason")) if gate else None,
        )

    def _send_traffic(self) -> None:
        """Until another draft is served, or the time is over.

        Where the next cycle has begun at once, traffic goes on a little, which shows what the new draft does; it must
        stop before it brings about yet another cycle.
        """
        until = time.monotonic() + 60 * self._options.minutes
        self._screen.phase(
            f"sending traffic, {many(self._options.concurrency, 'request')} at a time, until a better draft is served "
            f"({self._options.minutes:g} minutes at most)"
        )
        self._sending = True
        self._traffic.start()

        def enough(status: dict[str, Any]) -> bool:
            training = status["training"]
            plenty = not training["running"] or training["new_tokens"] >= training["cycle_tokens"] // 2
            return (len(self._versions) > 1 and plenty) or time.monotonic() >= until

        self._watch(enough)
        self._traffic.drain()
        self._sending = False

    def _wait_for_quiet(self) -> dict[str, Any]:
        quiet_since = time.monotonic()

        def quiet(status: dict[str, Any]) -> bool:
            nonlocal quiet_since
            if status["training"]["running"]:
                quiet_since = time.monotonic()
            return time.monotonic() - quiet_since >= _SETTLED

        return self._watch(quiet)

    def _watch(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Show every status until one is enough."""

        def look(status: dict[str, Any]) -> bool:
            self._note_version(status)
            traffic = self._traffic.figures() if self._sending else None
            self._screen.update(status, traffic, self._appliance.history)
            trainer = status["children"].get("trainer", {})
            if trainer.get("state") == "FATAL":
                raise TideError("the trainer cannot go on", why=trainer.get("reason"))
            return enough(status)

        return self._appliance.watch(look)

    def _note_version(self, status: dict[str, Any]) -> None:
        served = status["drafts"]["served"]
        if status["state"] == "READY" and served is not None and self._versions[-1:] != [served]:
            self._versions.append(served)
