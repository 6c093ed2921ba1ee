"""Side threads against real compute threads, in a process of their own: those of a test process are many."""

import subprocess
import sys

CAST = """
import os, threading, torch
from tide_cli.engine.plugin.side_thread import start_side_thread

def cast():
    torch.randn(400, 2304).to(torch.bfloat16)

torch.set_num_threads(2)
cast()
before = len(os.listdir("/proc/self/task"))
done = threading.Event()
after = []

def work():
    cast()
    after.append(len(os.listdir("/proc/self/task")))
    done.set()

{start}
assert done.wait(60)
print(before, *after, torch.get_num_threads())
"""


def threads(start: str) -> list[int]:
    """Threads before, threads with the new one at work, compute threads of the main one afterwards."""
    code = CAST.replace("{start}", start)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return [int(word) for word in out.stdout.split()]


def test_a_side_thread_brings_no_compute_threads_of_its_own():
    before, during, compute = threads('start_side_thread("tide-test", work)')
    assert during == before + 1
    assert compute == 2


def test_an_ordinary_thread_would():
    before, during, _ = threads("threading.Thread(target=work).start()")
    assert during == before + 1 + 1
