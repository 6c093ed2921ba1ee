"""The arms of an experiment: appliances that stand side by side, on copies of one state folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tide_cli.bench.client import Answer, run, send_all
from tide_cli.bench.engines import Appliance, bench_settings, room_for, running, settings_in_force, with_defaults
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.progress import Progress
from tide_cli.bench.requests import Request
from tide_cli.bench.scratch import scratch_folder
from tide_cli.errors import TideError, UsageError, reason
from tide_cli.hardware.cores import format_cores
from tide_cli.settings import Settings
from tide_cli.supervisor.appliance import check_settings
from tide_cli.supervisor.control_client import ask
from tide_cli.telemetry.totals import spool_totals

_SETTLED = 6.0  # seconds without training after which none begins any more: the spool is looked at every 2 s
# short, so that it is answered whatever the requests are that will be measured
_WARM_UP = Request(({"role": "user", "content": "What is a tide?"},), max_tokens=16)
# what belongs to one life of an appliance, or to one place
_NOT_COPIED = ("run", "logs", "tmp", "lock", "*.sock")


class Arms:
    """Appliances below one folder, by name. On a CPU several may run at once: an engine without work sleeps."""

    def __init__(
        self, folder: Path, common: Mapping[str, Any], interrupts: Interrupts, *, together: bool = True
    ) -> None:
        """common: settings of every arm; together: several will stand at once. Raises UsageError for settings that
        cannot be, and where several would stand on GPUs: there two engines do not share what one of them has taken."""
        self._folder, self._common, self._interrupts = folder, dict(common), interrupts
        plan = check_settings(bench_settings(folder / "plan", **self._common)).plan
        self.on_cpu = plan.serve.device == "cpu"
        if together and not self.on_cpu:
            raise UsageError(
                "the arms cannot stand side by side on GPUs",
                why="each engine takes all the memory that its plan gives it",
                remedy="set TIDE_GPUS=cpu: the CPU holds them all",
            )
        # an engine has the same cores whether a trainer stands beside it or not
        self._common["serve_cores"] = format_cores(plan.serve.cores)

    def state(self, name: str) -> Path:
        return self._folder / name

    def settings(self, name: str, **own: Any) -> Settings:
        return bench_settings(self.state(name), **{**self._common, **own})

    def effective(self) -> dict[str, Any]:
        """The settings in force for every arm that figures may depend on, TIDE_* and the settings file included."""
        return settings_in_force(self._common)

    @contextmanager
    def standing(self, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Appliance]]:
        """Start arms, each with settings of its own, and wait until they answer; ended when the block is left.

        Inside, a signal raises KeyboardInterrupt.
        """
        with ExitStack() as stack:
            arms = {
                name: stack.enter_context(running(self.settings(name, **own), self._interrupts))
                for name, own in wanted.items()
            }
            with self._interrupts.allowed():
                for appliance in arms.values():
                    appliance.watch(_ready)
                yield arms

    def copy(self, source: str, target: str) -> None:
        """A copy of an arm that does not run: its drafts, spool, training state and journal. TideError without room."""
        half = self.state(half_copied(target))
        try:
            for leftover in (half, self.state(target)):
                if leftover.exists():
                    shutil.rmtree(leftover)
            shutil.copytree(self.state(source), half, ignore=shutil.ignore_patterns(*_NOT_COPIED))
            half.rename(self.state(target))
        except (OSError, shutil.Error) as error:
            why = reason(error)
            raise TideError(f"cannot copy {self.state(source)}", why=why) from None


def half_copied(name: str) -> str:
    """The folder of an arm's state while it is copied."""
    return f"{name}.half"


def short_cycles(**more: Any) -> dict[str, Any]:
    """Settings that let an arm learn within minutes, unless the user has set them otherwise; and `more`. UsageError."""
    chosen = {
        "cycle_tokens": 3000,
        "cycle_seconds": 60.0,
        "held_out_share": 0.25,  # so that the first gate finds enough samples
        "gate_samples": 32,
    }
    return with_defaults(chosen, more)


def send(
    appliance: Appliance,
    requests: Sequence[Request],
    concurrency: int | None,
    *,
    captured: bool,
    arrivals: Sequence[float] | None = None,
    on_answer: Callable[[Answer], None] | None = None,
    all_may_fail: bool = False,
) -> list[Answer]:
    """Answers in the order of the requests. Either concurrency or arrivals, as of `send_all`. TideError where not one
    was answered.

    all_may_fail: it may be that none can be; TideError only where the engine does not answer anything else either.
    """
    answers = run(
        send_all(
            appliance.url,
            appliance.model,
            requests,
            concurrency=concurrency,
            arrivals=arrivals,
            captured=captured,
            on_answer=on_answer,
        )
    )
    if all(answer.error for answer in answers):
        appliance.watch(_ready)  # an engine that has ended says why
        if all_may_fail:
            warm_up(appliance)
            return answers
        raise TideError("not one request was answered", why=answers[0].error)
    return answers


class WarmEngines:
    """Engines by name, each warm when it is asked for: all at once on a CPU, where one without work sleeps.

    On GPUs only one stands at a time: where another one is asked for, it is ended before.
    """

    def __init__(self, arms: Arms, wanted: Mapping[str, Mapping[str, Any]], progress: Progress) -> None:
        self._arms, self._wanted, self._progress = arms, wanted, progress
        self._standing: dict[str, Appliance] = {}
        self._stack = ExitStack()

    def __enter__(self) -> WarmEngines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Appliance:
        """Raises TideError where it does not come up, and KeyboardInterrupt for a signal."""
        if name not in self._standing:
            self._standing = {}
            self._stack.close()
            together = dict(self._wanted) if self._arms.on_cpu else {name: self._wanted[name]}
            self._progress.say("starting an engine" if len(together) == 1 else f"starting {len(together)} engines")
            started = self._stack.enter_context(self._arms.standing(together))
            for appliance in started.values():
                warm_up(appliance)
            self._standing = started
        return self._standing[name]

    def stored(self, name: str) -> dict[str, int]:
        """The counters of an engine's spool, whether it stands or not."""
        return spool_totals(self._arms.settings(name).paths.spool)


@contextmanager
def warm_engines(
    wanted: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any], at_once: int, progress: Progress
) -> Iterator[WarmEngines]:
    """Engines that can be measured, beside which nothing is trained; nothing is left of them afterwards.

    wanted, common: settings of each and of all; at_once: requests that will run side by side. Raises TideError or
    UsageError.
    """
    with Interrupts() as interrupts, scratch_folder() as folder:
        settings = {"training": False, **common, "max_running_requests": room_for(at_once, common)}
        arms = Arms(folder, settings, interrupts, together=False)
        with WarmEngines(arms, wanted, progress) as engines:
            _ = engines[next(iter(wanted))]  # before anything is timed
            yield engines


def warm_up(appliance: Appliance) -> None:
    """One short answer that is not measured: the first one of an engine's life is slow. TideError without one."""
    send(appliance, [_WARM_UP], 1, captured=False)


def pause(appliance: Appliance, paused: bool) -> None:
    """Let no training cycle begin, or let them begin again. Raises TideError."""
    ask(appliance.settings.paths.socket, "POST", "/v1/train/pause", {"pause": paused})


def settle(appliance: Appliance) -> int:
    """After the traffic: let every cycle end that it has brought about, and its draft come into service; then pause.

    Returns the served version.
    """
    quiet_since = time.monotonic()

    def quiet(status: dict[str, Any]) -> bool:
        nonlocal quiet_since
        if status["training"]["running"] or not _ready(status):
            quiet_since = time.monotonic()
        return time.monotonic() - quiet_since >= _SETTLED

    served = appliance.watch(quiet)["drafts"]["served"]
    pause(appliance, True)  # it would cancel a cycle that runs
    return int(served)


def _ready(status: dict[str, Any]) -> bool:
    trainer = status["children"].get("trainer")
    if trainer is not None and trainer["state"] == "FATAL":
        raise TideError("the trainer cannot go on", why=trainer["reason"], remedy="`tide logs trainer` may say why")
    return status["state"] == "READY" and (trainer is None or trainer["state"] == "READY")
