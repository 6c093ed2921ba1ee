"""The first instructions of every child: bind its life to its parent's, take its cores, become the program.

Run as a file by an isolated interpreter: `python -I -S exec_child.py PARENT_PID CORES PROGRAM ARGUMENT…`. A
separate program rather than a function between fork and exec, because the supervisor and the trainer have threads, and
nothing that takes a lock may run there. The death signal survives exec. It is sent when the *thread* that forked ends,
so children are started from the parent's main thread only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1


def bound(cores: Iterable[int], program: Iterable[str]) -> list[str]:
    """The command that runs a program and its arguments on these cores, for no longer than this process lives."""
    places = ",".join(map(str, cores))
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), places, *program]


def bind_life(parent: int, number: int) -> None:
    """Have the kernel send signal `number` to this process when `parent` ends. SystemExit where it has already."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        sys.exit(f"cannot arm the death signal: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent ended before its child began")


def main(arguments: list[str]) -> None:
    """Does not return."""
    parent, cores, program = int(arguments[0]), arguments[1], arguments[2:]
    bind_life(parent, int(signal.SIGKILL))
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"cannot run {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
