"""Real children: their group, those who leave it, their words, their cores, and what happens when the parent dies."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tide_cli.supervisor.family import Mark, find_family
from tide_cli.supervisor.messages import TARGET, Exited, Message
from tide_cli.supervisor.process import ChildProcess, ChildSpec
from tide_cli.supervisor.processes import Processes
from tide_cli.supervisor.procfs import process_stat

WITHIN = 30.0  # seconds after which a test gives up waiting for an event

# a child with a grandchild in its group and one that left for a session of its own; both ignore TERM
FAMILY = """
import os, signal, subprocess, sys, time
quiet = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
for new_session in (False, True):
    child = subprocess.Popen([sys.executable, "-c", quiet], start_new_session=new_session, stdout=subprocess.PIPE)
    child.stdout.readline()
os.write(int(sys.argv[1]), b'{"event": "ready"}\\n')
time.sleep(600)
"""


class Running:
    """A child and the news of it."""

    def __init__(self, folder: Path, code: str, talks: bool = True, **spec: Any) -> None:
        self.exits: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.mark = Mark.of(folder, "child")
        self.log = folder / "child.log"
        made = ChildSpec(
            argv=[sys.executable, "-c", code],
            env=dict(os.environ),
            log=self.log,
            mark=self.mark,
            talks=talks,
            **{"cores": [min(os.sched_getaffinity(0))], **spec},
        )
        self.process = ChildProcess(made, lambda code, words: self.exits.put((code, words)), self.events.put)

    def exit(self) -> tuple[int, str]:
        return self.exits.get(timeout=WITHIN)

    def family(self) -> set[int]:
        return {stat.pid for stat in find_family(self.mark, self.process.pid)}


# a grandchild that has mapped a table of SGLang's, in a session of its own
TABLE = """
import os, subprocess, sys, time
maps = "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4096); print('up', flush=True)"
child = subprocess.Popen(
    [sys.executable, "-c", maps + "; time.sleep(600)", {table!r}], start_new_session=True, stdout=subprocess.PIPE
)
child.stdout.readline()
os.write(int(sys.argv[1]), b'{{"event": "ready"}}\\n')
time.sleep(600)
"""


@pytest.mark.parametrize("end", ["terminated", "killed", "crashed"])
def test_the_tables_of_one_that_ends_on_its_way_up_are_removed(tmp_path: Path, end: str) -> None:
    table = Path(f"/dev/shm/sglang_loads_{os.getpid():x}_{end}.shm")
    table.write_bytes(bytes(4096))
    try:
        child = Running(tmp_path, TABLE.format(table=str(table)))
        assert child.events.get(timeout=WITHIN) == {"event": "ready"}
        match end:
            case "terminated":
                child.process.terminate()
            case "killed":
                child.process.kill()
            case _:
                os.kill(child.process.pid, signal.SIGKILL)
        child.exit()
        assert not table.exists()
    finally:
        table.unlink(missing_ok=True)


def test_a_child_leads_its_own_session_on_its_own_cores(tmp_path: Path) -> None:
    code = "import os; print(os.getpid(), os.getsid(0), os.getpgid(0), *os.sched_getaffinity(0))"
    running = Running(tmp_path, code, talks=False)
    assert running.exit()[0] == 0
    pid, session, group, *cores = map(int, running.log.read_text().split())
    assert pid == session == group == running.process.pid
    assert cores == [min(os.sched_getaffinity(0))]
    assert running.log.stat().st_mode & 0o777 == 0o600


def test_a_child_that_may_begin_on_more_cores_settles_on_its_own_with_all_its_family(tmp_path: Path) -> None:
    """Threads included; on a machine with a single core there is nothing to see."""
    allowed = sorted(os.sched_getaffinity(0))
    code = """
import os, subprocess, sys, threading
cores = lambda: sorted(os.sched_getaffinity(0))
code = "import os; input(); print(*os.sched_getaffinity(0), flush=True)"
other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
asked, told = threading.Event(), []
thread = threading.Thread(target=lambda: (asked.wait(), told.append(cores())))
thread.start()
print(*cores(), flush=True)
os.write(int(sys.argv[1]), b'{"event": "begun"}\\n')
sys.stdin.readline()
other.communicate(b"\\n")
asked.set()
thread.join()
print(*told[0], flush=True)
print(*cores(), flush=True)
"""
    running = Running(tmp_path, code, cores=allowed[:1], start_cores=allowed)
    running.events.get(timeout=WITHIN)
    running.process.settle()
    running.process.tell({"cmd": "go on"})
    assert running.exit()[0] == 0
    before, *after = [[int(core) for core in line.split()] for line in running.log.read_text().splitlines()]
    assert before == allowed
    assert after == [allowed[:1]] * 3


def test_commands_go_in_and_events_come_out(tmp_path: Path) -> None:
    code = """
import json, os, sys
for line in sys.stdin:
    os.write(int(sys.argv[1]), b"not json\\n" + json.dumps({"heard": json.loads(line)["cmd"]}).encode() + b"\\n")
"""
    running = Running(tmp_path, code)
    running.process.tell({"cmd": "train", "served": 1})
    assert running.events.get(timeout=WITHIN) == {"heard": "train"}
    running.process.terminate()
    assert running.exit()[0] == -signal.SIGTERM
    running.process.tell({"cmd": "late"})  # nobody listens any more, which is no error


@pytest.mark.parametrize("kill", [False, True])
def test_the_exit_is_told_when_nobody_of_the_family_is_left(tmp_path: Path, kill: bool) -> None:
    running = Running(tmp_path, FAMILY)
    running.events.get(timeout=WITHIN)
    assert len(running.family()) == 3
    if kill:
        running.process.kill()
    else:
        running.process.terminate()
    running.exit()
    assert running.family() == set()


def test_a_child_whose_log_takes_nothing_goes_on(tmp_path: Path) -> None:
    code = """
import logging, os, sys
logging.basicConfig(level=logging.INFO)
for _ in range(3):
    logging.info("lost")
os.write(int(sys.argv[1]), b'{"event": "last"}\\n')
os._exit(0)
"""
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    exits: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    spec = ChildSpec(
        argv=[sys.executable, "-c", code],
        env=dict(os.environ),
        cores=[min(os.sched_getaffinity(0))],
        log=Path("/dev/full"),
        mark=Mark.of(tmp_path),
        talks=True,
    )
    ChildProcess(spec, lambda code, tail: exits.put((code, tail)), events.put)
    assert events.get(timeout=WITHIN) == {"event": "last"}
    assert exits.get(timeout=WITHIN) == (0, "")


def test_a_program_that_is_missing_exits_with_the_reason(tmp_path: Path) -> None:
    exits: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    spec = ChildSpec(
        ["/no/such/program"], dict(os.environ), [min(os.sched_getaffinity(0))], tmp_path / "log", Mark.of(tmp_path)
    )
    ChildProcess(spec, lambda code, words: exits.put((code, words)))
    code, words = exits.get(timeout=WITHIN)
    assert code != 0
    assert "No such file" in words


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    """The death signal reaches the child even where it never looks at its stdin."""
    parent_code = f"""
import os, sys, time
from pathlib import Path
from tide_cli.supervisor.family import Mark
from tide_cli.supervisor.process import ChildProcess, ChildSpec
child = ChildSpec([sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ),
                  [min(os.sched_getaffinity(0))], Path({str(tmp_path)!r}) / "log", Mark.of(Path({str(tmp_path)!r})))
print(ChildProcess(child, lambda code, words: None).pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        descriptor = os.pidfd_open(child)
        parent.kill()
        import select

        assert select.select([descriptor], [], [], WITHIN)[0]  # readable when the process has ended
        os.close(descriptor)
    stat = process_stat(child)
    assert stat is None or not stat.running


def test_events_are_json_objects_only(tmp_path: Path) -> None:
    code = """
import os, sys
os.write(int(sys.argv[1]), b'[1]\\n"x"\\n{"event": "last"}\\n{"cut')
"""
    running = Running(tmp_path, code)
    assert running.exit()[0] == 0
    assert json.dumps(running.events.get(timeout=WITHIN)) == '{"event": "last"}'
    assert running.events.empty()


def test_a_log_that_is_a_folder_is_named(tmp_path: Path) -> None:
    log = tmp_path / "target.log"
    log.mkdir()
    spec = ChildSpec(argv=["true"], env={}, cores=[], log=log, mark=Mark.of(tmp_path, TARGET))
    told: list[Message] = []
    assert Processes(SimpleNamespace(spec=lambda child, served: spec), told.append).start(TARGET, 1, None) is None
    assert told == [Exited(TARGET, 1, 1, f"{log}: it is a folder")]


# a part of it that bears a title of SGLang's and outlives it by a moment
PARTS = """
import os, subprocess, sys, time
part = "import time; print('up', flush=True); time.sleep(600)"
child = subprocess.Popen(["sglang::detokenizer", "-c", part], executable=sys.executable, stdout=subprocess.PIPE)
child.stdout.readline()
os.write(int(sys.argv[1]), b'{"event": "part", "pid": %d}\\n' % child.pid)
child.wait()
time.sleep(600)
"""


@pytest.mark.parametrize(("killed", "lost"), [("part", ["detokenizer"]), ("child", [])])
def test_a_lost_part_is_named_unless_the_child_itself_was_killed(tmp_path: Path, killed: str, lost: list[str]) -> None:
    running = Running(tmp_path, PARTS)
    part = running.events.get(timeout=WITHIN)["pid"]
    running.process.note_parts()
    os.kill(part if killed == "part" else running.process.pid, signal.SIGKILL)
    if killed == "child":
        running.exit()
    else:
        while process_stat(part):
            pass
    assert running.process.lost_parts() == lost
    running.process.kill()
