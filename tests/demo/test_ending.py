"""`tide demo` as a process: however it ends, nothing it started or wrote is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest


class Demo:
    """A running `tide demo` with a temporary folder of its own, and a mark that its processes inherit."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.temporary = folder / "t"  # short: sockets are put into it
        self.temporary.mkdir()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tide_cli", "demo", *arguments],
            env=inherited
            | {
                "TMPDIR": str(self.temporary),
                "STARTED_BY_TEST": str(folder),
                "XDG_CONFIG_HOME": str(folder),
                "TIDE_CACHE_DIR": str(folder / "cache"),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, words: str) -> None:
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"ended without saying {words!r}: {self.process.stderr.read()}")

    def end(self) -> tuple[int, str]:
        """(exit code, stderr)."""
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors

    def processes(self) -> list[str]:
        """Command lines of what still runs with this mark."""
        found = []
        for pid in self._marked():
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text())
        return found

    def _marked(self) -> list[int]:
        entry = os.fsencode(f"STARTED_BY_TEST={self.temporary.parent}")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def close(self) -> None:
        """After a test that failed: end whatever still runs with this mark, the demo itself first."""
        self.process.kill()
        self.process.wait()
        for pid in self._marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left(self) -> list[Path]:
        return list(self.temporary.iterdir())


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str, **environment: str) -> Demo:
        started.append(Demo(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for demo in started:
        demo.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting engine and trainer", "target started"])
def test_an_interruption_ends_everything(moment: str, number: signal.Signals, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo()
    demo.wait_for(moment)
    assert all(path.name.startswith("tide-") for path in demo.left())
    assert [path for path in demo.left() if path.name.startswith("tide-demo-")]
    demo.process.send_signal(number)
    code, errors = demo.end()
    assert code == 130
    assert "Traceback" not in errors
    assert demo.processes() == []
    assert demo.left() == []


def test_a_failure_ends_everything_and_says_why(tmp_path: Path, start_demo: Callable[..., Demo]) -> None:
    (tmp_path / "cache").write_text("no folder")
    demo = start_demo()
    code, errors = demo.end()
    assert code == 1
    assert "cache" in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 2
    assert demo.processes() == []
    assert demo.left() == []


def test_the_state_folder_stays_where_it_is_asked_for(tmp_path: Path, start_demo: Callable[..., Demo]) -> None:
    (tmp_path / "cache").write_text("no folder")
    demo = start_demo("--state-dir", str(tmp_path / "state"))
    assert demo.end()[0] == 1
    assert (tmp_path / "state" / "logs" / "supervisor.log").is_file()
    assert demo.processes() == []
    assert demo.left() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workload", "absent.jsonl"], "cannot read the workload absent.jsonl: No such file or directory"),
        (["--concurrency", "0"], "--concurrency"),
        (["--minutes", "inf"], "inf is not a number"),
        (["--minutes", "0"], "--minutes"),
    ],
)
def test_bad_usage_starts_nothing(arguments: list[str], words: str, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo(*arguments)
    code, errors = demo.end()
    assert code == 2
    assert words in errors
    assert len(errors.splitlines()) <= 2
    assert demo.left() == []


def test_a_bad_setting_is_named(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo(TIDE_SERVE_CORES="9999")
    code, errors = demo.end()
    assert code == 2
    assert "--serve-cores" in errors
    assert demo.left() == []


def test_a_killed_demo_takes_its_appliance_along(start_demo: Callable[..., Demo]) -> None:
    """Its temporary folder stays: nobody is left who could remove it."""
    demo = start_demo()
    demo.wait_for("target started")
    demo.process.kill()
    demo.end()
    deadline = time.monotonic() + 60
    while demo.processes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
