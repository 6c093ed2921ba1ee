"""The fault table: what breaks around an appliance, and what it does then. Real processes, scripted programs.

The kills of engine, scheduler, trainer and supervisor are in test_appliance.py, those of SGLang's own processes in
tests/e2e, stale records and locks in test_state_folder.py.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from scripted_process import ROOT, SCRIPTED, WITHIN, ScriptedAppliance

from tide_cli.errors import TideError
from tide_cli.file_locks import is_locked
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.writer import SpoolWriter
from tide_cli.supervisor.appliance import outcome_error, read_outcome
from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.down import bring_down
from tide_cli.supervisor.journal import read_events

# Runs one command of TIDE's as a user who owns nothing. Everything is imported before: he may not read this program.
AS_NOBODY = """
import os, sys
from rich.console import Console
import tide_cli.cli.register, tide_cli.settings, tide_cli.dashboard.status
import tide_cli.supervisor.appliance, tide_cli.supervisor.down, tide_cli.supervisor.control, tide_cli.engine.client
import tide_cli.cli.spool_change, tide_cli.spool.upkeep, tide_cli.spool.writer, tide_cli.supervisor.lock
import tide_cli.supervisor.detach, tide_cli.drafts.store, tide_cli.supervisor.journal, psutil, http.client
from tide_cli.cli.app import main
os.setegid(65534); os.seteuid(65534)
main(sys.argv[1:])
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def nothing_is_left(appliance: ScriptedAppliance) -> None:
    assert appliance.family() == []
    assert not is_locked(appliance.paths.lock)
    assert not appliance.paths.socket.exists()


def as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )


def short(answer: subprocess.CompletedProcess[str]) -> bool:
    """One or two lines, no traceback."""
    return 1 <= len(answer.stderr.splitlines()) <= 2 and "Traceback" not in answer.stderr


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_the_folder_of_another_user(tmp_path: Path, mode: int) -> None:
    """Shut, or open to be read only."""
    for parent in [tmp_path, *list(tmp_path.parents)[:-2]]:
        parent.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=mode)
    for command in ("ps", "status", "down"):
        answer = as_nobody(command, "--state-dir", state)
        assert re.search("another user|Permission denied|no appliance runs", answer.stderr), answer
        assert answer.returncode in (1, 2, 3)
        assert short(answer), answer
    answer = as_nobody("up", "--state-dir", state, "--cache-dir", tmp_path / "cache")
    assert answer.returncode != 0
    assert short(answer), answer
    assert list(state.iterdir()) == []


@as_root
@pytest.mark.parametrize(("entry", "mode"), [("spool", 0o500), ("spool/index.db", 0o000)])
def test_a_spool_that_must_not_be_written(tmp_path: Path, entry: str, mode: int) -> None:
    """Its contents are not to blame: a repair is of no use."""
    for parent in [tmp_path, *list(tmp_path.parents)[:-2]]:
        parent.chmod(0o755)
    state = tmp_path / "state"
    layout = RowLayout(hidden_size=8, page_tokens=4, target="tiny")
    SpoolWriter.open(
        state / "spool", layout, layout.size_for(4), run="r", max_sample_tokens=4, held_out_share=0
    ).close()
    for path in (state, *state.rglob("*")):
        os.chown(path, 65534, 65534)
    (state / entry).chmod(mode)
    for command in ("stat", "ls", "repair"):
        answer = as_nobody("spool", command, "--state-dir", state)
        if entry == "spool" and command != "repair":  # it can be looked at
            assert (answer.returncode, answer.stderr) == (0, "")
            continue
        assert short(answer), answer
        assert (answer.returncode, "spool repair" in answer.stderr, "fault" in answer.stderr) == (1, False, False)


@as_root
def test_the_running_appliance_of_another_user(appliance: ScriptedAppliance) -> None:
    for parent in [appliance.folder, *list(appliance.folder.parents)[:-2]]:
        parent.chmod(0o755)
    appliance.up()
    for command in ("ps", "down"):
        answer = as_nobody(command, "--state-dir", appliance.paths.state)
        assert answer.returncode != 0
        assert short(answer), answer
    assert appliance.status()["state"] == "READY"


def test_a_crash_loop_ends_with_the_reason(appliance: ScriptedAppliance) -> None:
    (appliance.folder / "crash").write_text("out of luck")
    assert appliance.start().wait(timeout=WITHIN) == 1
    outcome = read_outcome(appliance.paths)
    assert "3 times in a row: out of luck" in outcome["reason"]
    assert outcome_error(outcome).lines()[2:] == ["| out of luck"]
    nothing_is_left(appliance)


def test_a_port_that_is_taken_while_the_engine_is_away(appliance: ScriptedAppliance) -> None:
    """The engine cannot come back until the port is free again, and then does."""
    pid = appliance.up()["children"]["engine"]["pid"]
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(pid, signal.SIGKILL)
        while True:
            try:
                thief.bind(("127.0.0.1", appliance.port))
                break
            except OSError:
                time.sleep(0.01)
        thief.listen()
        status = appliance.until(lambda status: status["children"]["engine"]["failures"] == 2)
        assert "is taken" in status["children"]["engine"]["reason"]
    assert appliance.until(lambda status: status["state"] == "READY")["drafts"]["served"] == 0


def test_a_port_of_another_appliance_whose_engine_is_away(appliance: ScriptedAppliance) -> None:
    pid = appliance.up("restart_limit=50")["children"]["engine"]["pid"]
    (appliance.folder / "crash").write_text("out of luck")
    os.kill(pid, signal.SIGKILL)
    appliance.until(lambda status: status["children"]["engine"]["state"] == "BACKOFF")
    folder = appliance.folder / "second"
    folder.mkdir()
    second = ScriptedAppliance(folder)
    second.port = appliance.port
    output = second.start().communicate(timeout=WITHIN)[0]
    assert f"port {appliance.port} belongs to another appliance (pid {appliance.process.pid})" in output
    assert not second.paths.state.exists()


def test_a_supervisor_that_was_stopped_for_a_while(appliance: ScriptedAppliance) -> None:
    """It has not looked, which says nothing of the engine."""
    before = appliance.up("hang_timeout=12")["children"]["engine"]
    appliance.process.send_signal(signal.SIGSTOP)
    time.sleep(16)
    appliance.process.send_signal(signal.SIGCONT)
    time.sleep(3)
    after = appliance.status()["children"]["engine"]
    assert (after["pid"], after["state"]) == (before["pid"], "READY")


def test_down_while_starting(appliance: ScriptedAppliance) -> None:
    (appliance.folder / "mute").write_text("")
    appliance.start()
    appliance.until(lambda status: status["children"]["engine"]["state"] == "STARTING")
    assert bring_down(appliance.paths).supervisor
    assert appliance.process.wait(timeout=WITHIN) == 0
    nothing_is_left(appliance)


def test_two_at_the_same_moment(appliance: ScriptedAppliance) -> None:
    second = ScriptedAppliance(appliance.folder)
    both = [appliance, second]
    for one in both:
        one.start()
    winner = None
    deadline = time.monotonic() + WITHIN
    while winner is None:
        assert time.monotonic() < deadline
        winner = next((one for one in both if one.process.poll() is not None), None)
        time.sleep(0.02)
    loser, winner = winner, both[1 - both.index(winner)]
    assert "already runs" in loser.process.communicate()[0]
    assert loser.process.returncode != 0
    assert winner.until(lambda status: status["state"] == "READY")["pid"] == winner.process.pid
    winner.end()
    nothing_is_left(winner)


def test_a_trainer_that_hangs_at_its_work(appliance: ScriptedAppliance) -> None:
    (appliance.folder / "hold").touch()
    before = appliance.up("train_hang_timeout=2", "cycle_tokens=1000")["children"]
    appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    appliance.store_samples(held_out=4, tokens=50)
    assert ask(appliance.paths.socket, "POST", "/v1/train")["done"]
    os.kill(before["trainer"]["pid"], signal.SIGSTOP)
    after = appliance.until(lambda status: status["children"]["trainer"]["starts"] == 2)["children"]
    assert after["engine"]["pid"] == before["engine"]["pid"]
    [broken] = read_events(appliance.paths.database, newest=1, kind="broken")
    assert broken["text"] == "the trainer does not work: not a step in 2 s (train_hang_timeout)"
    assert appliance.end()[0] == 0
    nothing_is_left(appliance)


def test_a_clock_that_is_put_forward_and_back_by_a_day(appliance: ScriptedAppliance) -> None:
    status = appliance.up("hang_timeout=30")
    for day in ("86400", "-86400"):
        (appliance.folder / "clock").write_text(day)
        seen = appliance.status()["children"]["engine"]["seconds"]
        later = appliance.until(lambda status, seen=seen: status["children"]["engine"]["seconds"] > seen + 2)
        assert later["state"] == "READY"
        assert later["children"]["engine"]["pid"] == status["children"]["engine"]["pid"]
        assert later["children"]["engine"]["seconds"] < 1000
    assert appliance.end()[0] == 0
    nothing_is_left(appliance)


@as_root
def test_a_disk_that_runs_full(tmp_path: Path) -> None:
    """Serving goes on, orders are answered, the end is a clean one; only rows and log lines are lost."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=600m none {disk} && exec {sys.executable} {__file__} {disk}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{SCRIPTED.parent}"},
        capture_output=True,
        text=True,
        timeout=3 * WITHIN,
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 0, done.stdout + done.stderr


def _live_on_a_full_disk(disk: Path) -> None:
    """In a mount namespace of its own."""
    appliance = ScriptedAppliance(disk)
    try:
        appliance.up()
        appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
        with (disk / "filler").open("wb") as filler:
            while True:
                try:
                    os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), 1 << 12)
                    filler.seek(0, os.SEEK_END)
                except OSError:
                    break
        restart = {"children": ["trainer"]}
        assert "restarting" in ask(appliance.paths.socket, "POST", "/v1/restart", restart)["done"]
        status = appliance.until(lambda status: status["children"]["trainer"]["starts"] == 2)
        assert status["state"] == "READY"
        assert status["children"]["engine"]["starts"] == 1
        with suppress(TideError):  # refused for want of samples, but answered
            ask(appliance.paths.socket, "POST", "/v1/train")
        (disk / "filler").unlink()
        assert appliance.until(lambda status: status["state"] == "READY")
        assert appliance.end()[0] == 0
        nothing_is_left(appliance)
        assert read_events(appliance.paths.database)
    finally:
        appliance.close()


if __name__ == "__main__":
    _live_on_a_full_disk(Path(sys.argv[1]))
