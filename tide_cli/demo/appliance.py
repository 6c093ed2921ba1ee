"""The appliance of a demo: a detached supervisor on a folder of its own, and its end without a trace."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tide_cli.demo.interrupts import Interrupts
from tide_cli.errors import NotRunningError, TideError, UsageError
from tide_cli.settings import Settings, load_settings
from tide_cli.supervisor.appliance import outcome_error, read_outcome
from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.detach import start_detached
from tide_cli.supervisor.down import bring_down
from tide_cli.supervisor.ports import check_port

_HOST = "127.0.0.1"
_PORTS = range(20000, 30000)  # below those that the kernel gives to outgoing connections
_LOOK_EVERY = 0.5  # seconds between two looks at the status
_LONGEST_SILENCE = 120.0  # seconds a living supervisor may leave unanswered
_MARGIN = 30.0  # seconds beyond the children's own bound until the supervisor is killed

# What makes a demo short. TIDE_* in the environment overrules each.
_SETTINGS = {
    "gate_margin": 0.3,  # the first deployed draft shall be a plain improvement
    "cycle_tokens": 3000,
    "cycle_seconds": 75.0,
    "held_out_share": 0.25,  # so that the first gate finds enough samples
    "gate_samples": 24,
    "spool_size": 512 * 2**20,
}


def demo_settings(state: Path, concurrency: int) -> Settings:
    """Settings of a demo on `state` and a free port of the loopback. Raises UsageError."""
    chosen = {name: value for name, value in _SETTINGS.items() if f"TIDE_{name.upper()}" not in os.environ}
    fixed = {"state_dir": state, "host": _HOST, "port": _free_port(), "target": "smollm2-135m"}
    settings = load_settings({**chosen, **fixed})
    # what a demo cannot do without, whatever the user's own settings say
    return settings.model_copy(
        update={
            "draft": None,
            "speculation": "on",  # both drafts are measured at work
            "capture": True,
            "training": True,
            "max_running_requests": max(settings.max_running_requests, concurrency),
        }
    )


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with suppress(UsageError):
            check_port(_HOST, port)
            return port
    raise TideError("no free port on the loopback", why=f"tried 100 of {_PORTS.start}-{_PORTS.stop - 1}")


@contextmanager
def state_folder(wanted: Path | None, keep: bool) -> Iterator[Path]:
    """Yields `wanted`, which stays, or a temporary folder that is removed at the end unless `keep`."""
    if wanted:
        yield wanted.expanduser().absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="tide-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder)


class Appliance:
    """A running appliance, seen through its control socket."""

    def __init__(self, settings: Settings, process: subprocess.Popen[bytes]) -> None:
        self.settings = settings
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

    def use_draft(self, version: int) -> None:
        """Serve a version, whatever the gate says. Raises TideError."""
        ask(self.settings.paths.socket, "POST", "/v1/drafts/use", {"version": version}, timeout=150)

    def end(self, hurried: Callable[[], bool]) -> None:
        """Stop in order, at once where `hurried`; returns when no process of it is left. Raises TideError if one is."""
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
