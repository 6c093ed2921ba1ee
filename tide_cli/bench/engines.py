"""What is measured: appliances on state folders of their own, and their end without a trace."""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.scratch import scratch_folder
from tide_cli.engine.client import EngineClient
from tide_cli.errors import NotRunningError, TideError, UsageError
from tide_cli.settings import Settings, load_with_origins
from tide_cli.supervisor.appliance import outcome_error, read_outcome
from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.detach import start_detached
from tide_cli.supervisor.down import bring_down
from tide_cli.supervisor.family import Mark, find_family
from tide_cli.supervisor.ports import check_port
from tide_cli.telemetry.prometheus import parse_page

HOST = "127.0.0.1"
_PORTS = range(20000, 30000)  # below those that the kernel gives to outgoing connections
_LOOK_EVERY = 0.5  # seconds between two looks at the status
_LONGEST_SILENCE = 120.0  # seconds a living supervisor may leave unanswered
_MARGIN = 30.0  # seconds beyond the children's own bound until the supervisor is killed
_SPOOL_SIZE = 512 * 2**20  # bytes; a measurement stores little, and takes the whole size at once
_RESERVOIR_SIZE = 256 * 2**20  # bytes; an eighth of so small a ring would keep less than an appliance does
# settings that no figure depends on
_NO_MATTER = {
    *("state_dir", "cache_dir", "host", "port", "metrics_port", "on_event"),
    *("start_timeout", "hang_timeout", "train_hang_timeout", "stop_timeout", "restart_limit"),
}


def bench_settings(folder: Path, config: Path | None = None, **chosen: Any) -> Settings:
    """The user's own settings with `chosen` on top, on the state folder `folder` and a free port of the loopback.

    The port for metrics and the command for events are left to the user's own appliance. config: the settings file,
    None for the default one. Raises UsageError.
    """
    fixed = {"state_dir": folder, "host": HOST, "port": free_port()}
    settings, origins = load_with_origins(chosen | fixed, config)
    changed: dict[str, Any] = {"metrics_port": None, "on_event": None}
    if origins["spool_size"] == "default":
        kept = _RESERVOIR_SIZE if settings.reservoir_size is None else settings.reservoir_size
        changed |= {"spool_size": _SPOOL_SIZE, "reservoir_size": kept}
    return settings.model_copy(update=changed)


def settings_in_force(chosen: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The settings that figures may depend on, as JSON has them: `chosen`, TIDE_*, the settings file. UsageError."""
    return bench_settings(Path("bench"), **chosen).model_dump(mode="json", exclude={*_NO_MATTER, *without})


def with_defaults(defaults: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in `chosen`, None for what is not, and those of `defaults` that the user has set nowhere else.

    Else: with TIDE_* or in the settings file. Raises UsageError.
    """
    origins = load_with_origins(dict(chosen))[1]
    unset = {name: value for name, value in defaults.items() if origins[name] == "default"}
    return unset | {name: value for name, value in chosen.items() if value is not None}


def room_for(at_once: int, chosen: Mapping[str, Any]) -> int:
    """max_running_requests as the user has it with the settings in `chosen`, and at least `at_once`. UsageError."""
    return max(load_with_origins(dict(chosen))[0].max_running_requests, at_once)


def free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with suppress(UsageError):
            check_port(HOST, port)
            return port
    raise TideError("no free port on the loopback", why=f"tried 100 of {_PORTS.start}-{_PORTS.stop - 1}")


@contextmanager
def state_folder(wanted: Path | None, keep: bool, prefix: str) -> Iterator[Path]:
    """Yields `wanted`, which stays, or a temporary folder that is removed at the end unless `keep`."""
    if wanted:
        yield wanted.expanduser().absolute()
        return
    if keep:
        yield Path(tempfile.mkdtemp(prefix=prefix))
        return
    with scratch_folder(prefix) as folder:
        yield folder


class Appliance:
    """A running appliance, seen through its control socket."""

    def __init__(self, settings: Settings, process: subprocess.Popen[bytes]) -> None:
        self.settings = settings
        self.engine = EngineClient(settings.host, settings.port)
        self._process = process

    def watch(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Look at the status until it is `enough`, and return it. Raises TideError with the reason of an end."""
        heard = time.monotonic()
        while True:
            silence, status = None, None
            try:
                status = self.status()
                heard = time.monotonic()
            except TideError as error:  # it is coming up, going down or very busy
                silence = error
            if status is not None and enough(status):
                return status
            try:
                code = self._process.wait(timeout=_LOOK_EVERY)
            except subprocess.TimeoutExpired:
                if silence is not None and time.monotonic() - heard > _LONGEST_SILENCE:
                    raise silence from None
                continue
            raise outcome_error(read_outcome(self.settings.paths) or {"reason": f"the supervisor ended ({code})"})

    def status(self) -> dict[str, Any]:
        return ask(self.settings.paths.socket, "GET", "/v1/status", timeout=10)

    def history(self) -> dict[str, Any] | None:
        """Of the last quarter of an hour, a row for each 10 seconds; None where it is not told at the moment."""
        try:
            return ask(self.settings.paths.socket, "GET", "/v1/history?since=900&step=10", timeout=10)
        except TideError:
            return None

    @property
    def url(self) -> str:
        """Base URL of the engine, without /v1."""
        return self.engine.base_url

    @property
    def model(self) -> str:
        """What a request must call the target."""
        return str(self.status()["target"])

    def wait_until_ready(self) -> dict[str, Any]:
        """Until the engine has given a token and knows its round times, where the policy goes by them. TideError."""
        return self.watch(lambda status: status["state"] == "READY")

    def flush_cache(self) -> None:
        """Empty the prefix cache, as soon as no request is running. Raises TideError."""
        self.engine.flush_cache()

    def metrics(self) -> dict[str, float]:
        """Name to value of the engine's Prometheus page; empty where it does not answer at the moment."""
        try:
            return parse_page(self.engine.metrics_text())
        except httpx.HTTPError:
            return {}

    def memory(self) -> int:
        """Bytes of main memory of all its processes; what several share is divided among them."""
        total = 0
        for stat in find_family(Mark.of(self.settings.paths.state)):
            with suppress(psutil.Error):
                total += psutil.Process(stat.pid).memory_full_info().pss
        return total

    def use_draft(self, version: int) -> None:
        """Serve a version, whatever the gate says. Raises TideError."""
        ask(self.settings.paths.socket, "POST", "/v1/drafts/use", {"version": version}, timeout=150)

    def end(self, hurried: Callable[[], bool]) -> None:
        """Stop in order, at once where `hurried`; returns when no process of it is left. Raises TideError if one is."""
        self.engine.close()
        deadline = time.monotonic() + self.settings.stop_timeout + _MARGIN
        self._process.terminate()
        killing = False
        while self._process.poll() is None:
            if hurried() and not killing:
                self._process.terminate()  # the second signal tells the supervisor to kill
                killing = True
            if time.monotonic() > deadline:
                self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_LOOK_EVERY)
        # it has done this itself, unless it had to be killed
        with suppress(NotRunningError):
            bring_down(self.settings.paths, now=True)


@contextmanager
def running(settings: Settings, interrupts: Interrupts) -> Iterator[Appliance]:
    """Start an appliance; when the block is left, however it is, nothing of it runs any more."""
    appliance = Appliance(settings, start_detached(settings, bound=True))
    try:
        yield appliance
    finally:
        before = interrupts.count
        appliance.end(hurried=lambda: interrupts.count > before)
