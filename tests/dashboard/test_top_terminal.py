"""`tide top` and the foreground of `tide up`, typed at in a real terminal; engine and trainer are scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest
from scripted_process import ROOT, SCRIPTED, ScriptedAppliance
from terminals import HAS_TMUX, WITHIN, Emulator, Terminal, Tmux

from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.journal import read_events

Open = Callable[..., Terminal]


def top(appliance: ScriptedAppliance, *options: object) -> list[object]:
    return ["-m", "tide_cli", "top", "--state-dir", appliance.paths.state, *options]


def engine(appliance: ScriptedAppliance) -> int:
    return appliance.status()["children"]["engine"]["pid"]


def test_a_session(appliance: ScriptedAppliance, terminal: Open) -> None:
    appliance.up()
    appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    shown = terminal(*top(appliance), COLUMNS="40", LINES="10")  # what a shell may have exported
    shown.until(lambda text: "TIDE READY" in text and "5 Events" in text)
    shown.until("v0000 served")
    shown.keys("p")
    shown.until("training paused")
    assert appliance.status()["training"]["paused"]
    shown.until("paused by the user, trainer")
    shown.keys("p")
    shown.until("training resumed")

    appliance.store_samples(held_out=4, tokens=20)
    shown.keys("t")
    shown.until("a training cycle has begun")
    shown.until("v0001 served")
    shown.keys("r")
    shown.until("Serve v0000 again instead of v0001?")
    shown.keys("y")
    shown.until("v0000 is served")
    assert appliance.status()["drafts"]["served"] == 0

    shown.keys("2")
    assert "1 Engine" not in shown.until(lambda text: "2 Speculation" in text and "1 Engine" not in text)
    shown.keys("2")
    shown.until("1 Engine")
    shown.resize(60, 15)
    shown.until(lambda text: "1 Engine" in text and "5 Events" not in text)
    shown.resize(140, 45)
    shown.until("5 Events")
    shown.keys("l", "l", "l")
    shown.until("v0001 is served")
    shown.keys("q")
    shown.until(lambda text: "Events" not in text and "next log" not in text)
    assert appliance.status()["state"] == "READY"


# one kind is enough, and it takes long: nothing here is about the terminal
@pytest.mark.parametrize("terminal", [Tmux if HAS_TMUX else Emulator], indirect=True, ids=["one"])
def test_the_engine_and_the_supervisor_go_and_come_back(appliance: ScriptedAppliance, terminal: Open) -> None:
    appliance.up()
    shown = terminal(*top(appliance, "--readonly"))
    shown.until("TIDE READY")

    os.kill(engine(appliance), signal.SIGSTOP)  # hangs
    shown.until(", no answer for")
    shown.until("The engine has not answered for")
    os.kill(engine(appliance), signal.SIGCONT)
    shown.until(lambda text: "not answered" not in text and "no answer" not in text)

    os.kill(engine(appliance), signal.SIGKILL)
    shown.until("The engine has ended and starts again")
    shown.until(lambda text: "has ended" not in text and "start 2" in text and "TIDE READY" in text)

    os.kill(appliance.process.pid, signal.SIGSTOP)
    shown.until("The supervisor has not answered for")
    os.kill(appliance.process.pid, signal.SIGCONT)
    shown.until(lambda text: "not answered" not in text)

    appliance.end()
    shown.until("No supervisor runs")
    appliance.up()
    shown.until(lambda text: "No supervisor" not in text and "TIDE READY" in text)


def test_its_own_crash_leaves_everything_as_it_is(appliance: ScriptedAppliance, terminal: Open) -> None:
    before = appliance.up()["children"]
    shown = terminal(*top(appliance))
    shown.until("TIDE READY")
    os.kill(shown.pid(), signal.SIGKILL)
    after = appliance.until(lambda status: status["children"]["engine"]["state"] == "READY")["children"]
    assert {name: child["pid"] for name, child in after.items()} == {n: child["pid"] for n, child in before.items()}


def test_it_ends_with_its_terminal(appliance: ScriptedAppliance, terminal: Open) -> None:
    appliance.up()
    shown = terminal(*top(appliance))
    shown.until("TIDE READY")
    process = psutil.Process(shown.pid())
    shown.hang_up()
    deadline = time.monotonic() + WITHIN
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:  # a zombie: the test's own child
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert appliance.status()["state"] == "READY"


def up(appliance: ScriptedAppliance, terminal: Open) -> Terminal:
    shown = terminal(SCRIPTED, "up", appliance.folder, appliance.port)
    appliance.process = None  # of the terminal
    shown.until("TIDE READY")
    return shown


def dashboard(shown: Terminal) -> psutil.Process:
    """The process that draws on the terminal of `tide up`."""
    children = psutil.Process(shown.pid()).children()
    (found,) = [child for child in children if "tide_cli.dashboard.attached" in child.cmdline()]
    return found


def test_in_the_foreground_q_leaves_lines_and_ctrl_c_ends(appliance: ScriptedAppliance, terminal: Open) -> None:
    shown = up(appliance, terminal)
    shown.until("q close  ^C END")
    shown.keys("q")
    shown.until("the dashboard is closed; the appliance goes on here")
    assert appliance.status()["state"] == "READY"
    ask(appliance.paths.socket, "POST", "/v1/train/pause", {"pause": True})
    shown.until("training paused by the user")
    shown.keys("C-c")
    shown.until("the appliance has ended")
    assert appliance.family() == []


def test_in_the_foreground_ctrl_c_ends_the_appliance(appliance: ScriptedAppliance, terminal: Open) -> None:
    shown = up(appliance, terminal)
    shown.keys("C-c")
    shown.until("the appliance has ended")
    assert appliance.family() == []
    assert read_events(appliance.paths.database)[-1]["kind"] in ("exited", "stop")


def test_a_dashboard_that_is_killed_gives_the_terminal_back(appliance: ScriptedAppliance, terminal: Open) -> None:
    shown = up(appliance, terminal)
    dashboard(shown).kill()
    shown.until("the dashboard has failed (exit code -9); the appliance goes on here")
    assert appliance.status()["state"] == "READY"
    shown.keys("C-c")  # the terminal makes a signal of it again
    shown.until("the appliance has ended")


def test_a_supervisor_that_is_killed_takes_its_dashboard_along(appliance: ScriptedAppliance, terminal: Open) -> None:
    shown = up(appliance, terminal)
    drawing = dashboard(shown)
    os.kill(shown.pid(), signal.SIGKILL)
    psutil.wait_procs([drawing], timeout=60)
    assert not drawing.is_running()


def test_without_a_terminal_it_prints_lines(appliance: ScriptedAppliance) -> None:
    appliance.up()
    command = [sys.executable, *map(str, top(appliance, "--every", "1"))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert "READY" in line
            assert "v0000 served" in line
            appliance.end()
            assert any("No supervisor runs" in line for line in process.stdout)
        finally:
            process.terminate()


def test_json_lines(appliance: ScriptedAppliance) -> None:
    appliance.up()
    command = [sys.executable, *map(str, top(appliance, "--json"))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["state"] == "READY"
        finally:
            process.terminate()


def test_there_must_be_something_to_watch(appliance: ScriptedAppliance) -> None:
    done = subprocess.run([sys.executable, *map(str, top(appliance))], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert "no appliance runs on" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_that_knows_only_ascii_gets_only_that(
    appliance: ScriptedAppliance, terminal: Open, encoding: str
) -> None:
    appliance.up()
    shown = terminal(*top(appliance), PYTHONIOENCODING=encoding)
    shown.until("TIDE READY")
    text = shown.until(lambda text: "q detach" in text and "5 Events" in text)
    assert text.isascii() == (encoding == "ascii")
