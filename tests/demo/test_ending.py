"""`tide demo` as a process: however it ends, nothing it started or wrote is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
        entry = os.fsencode(f"STARTED_BY_TEST={self.temporary.parent}")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text())
            except OSError:
                continue
        return found

    def left(self) -> list[Path]:
        return list(self.temporary.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting engine and trainer", "started: target started"])
def test_an_interruption_ends_everything(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    demo = Demo(tmp_path)
    demo.wait_for(moment)
    assert all(path.name.startswith("tide-") for path in demo.left())
    assert [path for path in demo.left() if path.name.startswith("tide-demo-")]
    demo.process.send_signal(number)
    code, errors = demo.end()
    assert code == 130
    assert "Traceback" not in errors
    assert demo.processes() == []
    assert demo.left() == []


def test_a_failure_ends_everything_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    demo = Demo(tmp_path)
    code, errors = demo.end()
    assert code == 1
    assert "cache" in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 2
    assert demo.processes() == []
    assert demo.left() == []


def test_the_state_folder_stays_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    demo = Demo(tmp_path, "--state-dir", str(tmp_path / "state"))
    assert demo.end()[0] == 1
    assert (tmp_path / "state" / "logs" / "supervisor.log").is_file()
    assert demo.processes() == []
    assert demo.left() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workload", "absent.jsonl"], "cannot read the workload absent.jsonl: No such file or directory"),
        (["--concurrency", "0"], "--concurrency"),
        (["--minutes", "inf"], "--minutes inf is not accepted"),
        (["--minutes", "0"], "--minutes"),
    ],
)
def test_bad_usage_starts_nothing(tmp_path: Path, arguments: list[str], words: str) -> None:
    demo = Demo(tmp_path, *arguments)
    code, errors = demo.end()
    assert code == 2
    assert words in errors
    assert len(errors.splitlines()) <= 2
    assert demo.left() == []


def test_a_bad_setting_is_named(tmp_path: Path) -> None:
    demo = Demo(tmp_path, TIDE_SERVE_CORES="9999")
    code, errors = demo.end()
    assert code == 2
    assert "serve_cores" in errors
    assert demo.left() == []
