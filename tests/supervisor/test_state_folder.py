"""The lock, leftovers, ports and the journal, with real files, processes and sockets."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tide_cli.errors import NotRunningError, TideError, UsageError
from tide_cli.file_locks import is_locked
from tide_cli.paths import Paths
from tide_cli.supervisor.down import Ended, bring_down
from tide_cli.supervisor.family import Mark, find_family
from tide_cli.supervisor.journal import Journal, event_line, read_events, read_served
from tide_cli.supervisor.leftovers import find_leftovers, reap_leftovers, record_children
from tide_cli.supervisor.lock import StateLock, make_private, read_holder
from tide_cli.supervisor.ports import check_port, reserved
from tide_cli.supervisor.procfs import ProcessStat, process_stat


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    lock = StateLock(path)
    assert is_locked(path)
    assert read_holder(path)["pid"] == os.getpid()
    with pytest.raises(TideError, match="already runs"):
        StateLock(path)
    lock.release()
    assert not is_locked(path)
    assert read_holder(path) == {}
    StateLock(path).release()
    assert list(tmp_path.iterdir()) == []  # as it was before


def test_a_command_that_holds_the_lock_is_no_appliance(tmp_path: Path) -> None:
    paths = Paths.under(tmp_path, tmp_path)
    lock = StateLock(paths.lock, command="spool repair")
    with pytest.raises(TideError, match="`tide spool repair` is at work on") as caught:
        StateLock(paths.lock)
    assert caught.value.remedy == "try again when it is done"
    with pytest.raises(NotRunningError, match="no appliance runs") as caught:
        bring_down(paths)
    assert f"`tide spool repair` is at work on {tmp_path} (pid {os.getpid()})" == caught.value.why
    assert is_locked(paths.lock)
    lock.release()


def test_a_full_disk_costs_the_words_and_not_the_lock(tmp_path: Path) -> None:
    path, before = tmp_path / "lock", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # nothing can be written to any file
    try:
        lock = StateLock(path)
        assert is_locked(path)
        assert read_holder(path) == {}
        lock.release()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not path.exists()


def test_a_lock_whose_file_was_removed_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    path.parent.mkdir()
    lock = StateLock(path)
    assert lock.in_place()
    path.unlink()
    assert not lock.in_place()
    lock.release()
    assert list(path.parent.iterdir()) == []


def test_a_lock_that_another_one_has_taken_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    path.parent.mkdir()
    lock = StateLock(path)
    path.unlink()
    other = StateLock(path)
    assert not lock.in_place()
    lock.release()
    assert is_locked(path)
    other.release()


@pytest.mark.parametrize("instead", ["nothing", "a folder", "a file"])
def test_a_state_folder_that_was_moved_is_not_touched_again(tmp_path: Path, instead: str) -> None:
    path = tmp_path / "state" / "lock"
    path.parent.mkdir()
    lock = StateLock(path)
    path.parent.rename(tmp_path / "elsewhere")
    if instead == "a folder":
        path.parent.mkdir()
    elif instead == "a file":
        path.parent.touch()
    assert not lock.in_place()
    lock.release()
    assert not path.exists()


def test_a_lock_file_that_was_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    StateLock(path).release()
    assert path.exists()


def test_a_lock_whose_file_was_removed_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder ends between the opening of the file and the lock: whoever comes next makes another file."""
    path = tmp_path / "lock"
    first = StateLock(path)
    opened = os.open(path, os.O_RDWR)
    first.release()
    monkeypatch.setattr(StateLock, "_open", lambda self: opened)
    with pytest.raises(TideError, match="already runs"):
        StateLock(path)


@pytest.mark.parametrize("kind", ["folder", "broken link"])
def test_a_lock_that_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "no" / "where")
    with pytest.raises(TideError, match="cannot open the lock"):
        StateLock(path)


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from tide_cli.supervisor.lock import StateLock\n"
    code += "lock = StateLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        assert is_locked(path)
        holder.kill()
    assert not is_locked(path)
    StateLock(path).release()


def test_private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "state"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    for kept in (0o755, 0o500, 0o1777, 0o770):  # it may be another's than TIDE's
        folder.chmod(kept)
        if kept & 0o022:
            with pytest.raises(TideError, match="others may write") as raised:
                make_private(folder)
            assert f"mode is {kept:o}" in raised.value.why
        else:
            make_private(folder)
        assert folder.stat().st_mode & 0o7777 == kept
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TideError, match="is not yours") as raised:
        make_private(folder)
    assert raised.value.why == f"it belongs to user {os.getuid()}, you are user {os.getuid() + 1}"
    (tmp_path / "file").write_text("")
    with pytest.raises(TideError, match="cannot use"):
        make_private(tmp_path / "file" / "state")


SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def orphan(tmp_path: Path):
    """A process that a killed supervisor would have left behind."""
    environment = {**os.environ, **Mark.of(tmp_path, "engine").environment()}
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_leftovers_are_found_by_their_mark_and_ended(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    assert [stat.pid for stat in find_leftovers(tmp_path, tmp_path / "children.json")] == [orphan.pid]
    assert find_leftovers(tmp_path / "other", tmp_path / "children.json") == []
    found, remaining = reap_leftovers(tmp_path, tmp_path / "children.json")
    assert [stat.pid for stat in found] == [orphan.pid]
    assert remaining == []
    assert orphan.wait(timeout=10) != 0


def test_down_removes_what_a_killed_supervisor_left(tmp_path: Path) -> None:
    """Its processes have ended with it: nothing but the record tells which shared memory was theirs."""
    paths = Paths.under(tmp_path / "state", tmp_path)
    paths.scratch.mkdir(parents=True)
    paths.run.mkdir(parents=True)
    paths.lock.touch()
    table, other = (Path(f"/dev/shm/sglang_loads_tide-{os.getpid()}-{number}.shm") for number in range(2))
    (tmp_path / "kept").touch()
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        record_children(paths.run / "children.json", {"engine": process_stat(process.pid)}, [table, tmp_path / "kept"])
        process.kill()
    try:
        table.touch()
        other.touch()
        assert bring_down(paths) == Ended(supervisor=False, leftovers=0)
        assert (table.exists(), other.exists(), (tmp_path / "kept").exists()) == (False, True, True)
    finally:
        table.unlink(missing_ok=True)
        other.unlink()
    assert [path.name for path in paths.state.rglob("*")] == ["run"]
    assert not paths.scratch.exists()
    with pytest.raises(NotRunningError):
        bring_down(paths)


def test_a_supervisor_that_ended_in_order_has_left_nothing(tmp_path: Path) -> None:
    paths = Paths.under(tmp_path / "state", tmp_path)
    (paths.state / "tmp").mkdir(parents=True)  # not an appliance's, which removes its own
    paths.run.mkdir()
    record_children(paths.run / "children.json", {})
    with pytest.raises(NotRunningError):
        bring_down(paths)
    assert (paths.state / "tmp").is_dir()


def test_only_marked_processes_are_found_and_never_ourselves(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    assert [stat.pid for stat in find_family(Mark.of(tmp_path, "engine"))] == [orphan.pid]
    assert find_family(Mark.of(tmp_path, "trainer")) == []
    assert os.getpid() not in {stat.pid for stat in find_family(Mark.of(tmp_path), os.getpgrp())}
    with pytest.raises(ValueError, match="must name"):
        Mark("")


@pytest.mark.parametrize("damage", ["start", "boot", "file"])
def test_leftovers_are_found_by_their_record_which_must_be_of_that_very_process(tmp_path: Path, damage: str) -> None:
    record = tmp_path / "children.json"
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            process.stdout.readline()
            record_children(record, {"engine": process_stat(process.pid)})
            assert [stat.pid for stat in find_leftovers(tmp_path, record)] == [process.pid]
            content = json.loads(record.read_text())
            if damage == "start":
                content["children"]["engine"]["start"] += 1
            else:
                content["boot"] = "another boot"
            record.write_text("{" if damage == "file" else json.dumps(content))
            assert find_leftovers(tmp_path, record) == []
        finally:
            process.kill()


def test_sglangs_processes_are_found_when_their_launcher_is_gone(tmp_path: Path) -> None:
    """They carry no mark: the title they give themselves lies where their environment was."""
    record = tmp_path / "children.json"
    titles = ["sglang::scheduler", "somebody"]
    how = "executable=sys.executable, stdout=subprocess.DEVNULL"  # what they say must not come before their pids
    started = [f"subprocess.Popen([{title!r}, '-c', {SLEEPER!r}], {how})" for title in titles]
    script = f"import subprocess, sys; print(*(p.pid for p in [{', '.join(started)}]), flush=True); input()"
    launcher = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = [int(pid) for pid in launcher.stdout.readline().split()]
    try:
        record_children(record, {"engine": process_stat(launcher.pid)})
        with launcher.stdin, launcher.stdout:
            launcher.stdin.write("\n")
        launcher.wait()
        assert [stat.pid for stat in find_leftovers(tmp_path, record)] == pids[:1]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_a_process_name_may_hold_anything(tmp_path: Path) -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z (b'); print('up', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        stat = process_stat(process.pid)
        assert isinstance(stat, ProcessStat)
        assert stat.parent == os.getpid()
        assert stat.running
        process.communicate(b"\n")
    assert process_stat(process.pid) is None


def test_a_taken_port_names_its_holder_and_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} .*pid {os.getpid()}") as raised:
            check_port("127.0.0.1", port)
        other = int(raised.value.remedy.split()[-1])
        check_port("127.0.0.1", other)
    check_port("127.0.0.1", port)


def test_a_port_belongs_to_an_appliance_before_its_engine_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with reserved(port):
        for _ in range(200):  # nobody answers those who ask
            with pytest.raises(UsageError, match=rf"port {port} belongs to another appliance"):
                check_port("127.0.0.1", port)
        with pytest.raises(UsageError), reserved(port):
            pass
    check_port("127.0.0.1", port)


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        check_port("203.0.113.7", 30000)


def test_the_journal_keeps_events_in_order_and_one_served_version(tmp_path: Path) -> None:
    path = tmp_path / "tide #1.db"
    assert read_events(path) == []
    assert read_served(path) is None
    journal = Journal(path)
    first = journal.note("swap", "one", {"version": 1})
    journal.note("gate", "two\nlines", {})
    journal.serve(1)
    journal.serve(2)
    journal.close()
    events = read_events(path)
    assert [event["text"] for event in events] == ["one", "two\nlines"]
    assert events[0] == first
    assert event_line(events[1]).endswith(" two; lines")
    assert event_line({"time": 0.0, "text": "red \x1b[31m\x9b1m"}).endswith(r" red \x1b[31m\x9b1m")
    assert read_events(path, newest=1)[0]["kind"] == "gate"
    assert read_events(path, after=first["id"], kind="swap") == []
    assert read_served(path) == 2
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from served").fetchone() == (1,)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tide.db").write_bytes(b"not a database" * 100)
    with pytest.raises(TideError, match="cannot use"):
        Journal(tmp_path / "tide.db")
    with pytest.raises(TideError, match="cannot use"):
        read_events(tmp_path / "tide.db")
