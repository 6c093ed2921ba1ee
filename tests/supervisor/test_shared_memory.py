"""Only what the processes of one engine have mapped is theirs to remove."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tide_cli.supervisor.shared_memory import recorded_shared_memory, remove_shared_memory, shared_memory_of

MAPS = """\
55d0-55d1 r-xp 00000000 08:01 10 /usr/bin/python3
7f01-7f02 rw-s 00000000 00:1a 11 {table}
7f03-7f04 rw-s 00000000 00:1a 12 /dev/shm/sem.mp-x
7f05-7f06 rw-s 00000000 00:1a 13 /dev/shm/sglang_loads_of_no_one.shm (deleted)
"""


def test_tables_of_two_processes(tmp_path: Path) -> None:
    for pid, name in ((1, "a_1"), (2, "a_1"), (3, "b_2")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(MAPS.format(table=f"/dev/shm/sglang_loads_{name}.shm"))
    assert shared_memory_of([1, 2, 99], proc=tmp_path) == {Path("/dev/shm/sglang_loads_a_1.shm")}


def test_what_is_gone_or_kept_from_us_is_no_error(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("")
    remove_shared_memory([table, tmp_path / "gone", tmp_path])
    assert not table.exists()
    assert tmp_path.is_dir()


# it says its resource tracker's pid and the name of its semaphore, both of which survive its end
SEMAPHORE = """
import multiprocessing, multiprocessing.resource_tracker as tracker, sys, time
lock = multiprocessing.get_context("spawn").Lock()
print(tracker._resource_tracker._pid, lock._semlock.name, flush=True)
time.sleep(600)
"""


def test_the_semaphore_of_a_process_whose_resource_tracker_is_killed_as_well() -> None:
    def made() -> tuple[subprocess.Popen[str], int, Path]:
        process = subprocess.Popen([sys.executable, "-c", SEMAPHORE], stdout=subprocess.PIPE, text=True)
        tracker, name = process.stdout.readline().split()
        return process, int(tracker), Path("/dev/shm") / f"sem.{name.lstrip('/')}"

    (one, tracker, its), (other, _, of_other) = made(), made()
    try:
        found = shared_memory_of([one.pid])
        assert found == {its}
        os.kill(tracker, signal.SIGKILL)
        one.kill()
        one.wait()
        assert its.exists()
        assert recorded_shared_memory([str(path) for path in found]) == found
        remove_shared_memory(found)
        assert (its.exists(), of_other.exists()) == (False, True)
    finally:
        for process in (one, other):
            process.kill()
            process.wait()
            process.stdout.read()  # until its resource tracker has ended as well
            process.stdout.close()
        its.unlink(missing_ok=True)


def test_no_other_file_is_taken_from_a_record() -> None:
    others = ["/dev/shm/sem.other", "/dev/shm/sem.mp-a/../b", "/etc/passwd", "/dev/shm/sglang_loads_/../x.shm", 7]
    assert recorded_shared_memory(others) == set()
