"""A scripted appliance (see scripted.py) in a process of its own, and how to talk to it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.samples import SampleInfo
from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.family import Mark, end_family, find_family

SCRIPTED = Path(__file__).with_name("scripted.py")
ROOT = Path(__file__).parents[2]
WITHIN = 60.0  # seconds after which a test gives up waiting for an event


class ScriptedAppliance:
    """A scripted appliance in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = Paths.under(folder / "state", folder / "cache")
        # it stays bound, which hinders no server: nobody else who asks for a free port is given this one
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self, *chosen: str, under: Sequence[str] = ()) -> subprocess.Popen[str]:
        """under: a command that runs the appliance, where it is not run as it is."""
        self.process = subprocess.Popen(
            [*under, sys.executable, str(SCRIPTED), "appliance", str(self.folder), str(self.port), *chosen],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self.process

    def up(self, *chosen: str) -> dict[str, Any]:
        self.start(*chosen)
        return self.until(lambda status: status["state"] == "READY")

    def status(self) -> dict[str, Any]:
        return ask(self.paths.socket, "GET", "/v1/status")

    def until(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the status until it is `enough`."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                pytest.fail(f"the appliance ended: {self.process.stdout.read()}")
            try:
                status = self.status()
                if enough(status):
                    return status
            except TideError:
                pass
            time.sleep(0.05)
        return pytest.fail(f"not within {WITHIN} s: {status}")

    def store_samples(self, held_out: int, tokens: int) -> None:
        """An index with so many held-out samples, as the engine's capture would have written it."""
        index = SpoolIndex.create(self.paths.spool)
        rows = [
            SampleInfo(
                id=number,
                run="r",
                draft_version=0,
                created=1.0,
                tokens=50,
                prompt_tokens=10,
                prefix_missing=0,
                verify_steps=20,
                accepted=20,
                split="held_out",
                checksum=0,
                pages=(number,),
            )
            for number in range(1, held_out + 1)
        ]
        index.commit(rows, [], {"samples": held_out, "tokens": tokens})
        index.close()

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Signal the supervisor; its exit code and everything it printed."""
        self.process.send_signal(number)
        output = self.process.communicate(timeout=WITHIN)[0]
        return self.process.returncode, output

    def family(self) -> list[int]:
        return [stat.pid for stat in find_family(Mark.of(self.paths.state))]

    def close(self) -> None:
        self._reserved.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        end_family(lambda: find_family(Mark.of(self.paths.state)), grace=0)
        for table in Path("/dev/shm").glob(f"sglang_loads_{self.port}_*.shm"):
            table.unlink()
        shutil.rmtree(self.paths.scratch, ignore_errors=True)  # a killed one leaves it, and the socket
        self.paths.socket.unlink(missing_ok=True)
