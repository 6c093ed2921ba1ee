"""As process 1 of a container: somebody must reap orphans and pass signals on, and the program runs below."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

_OWN = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}  # the kernel's, and what this process waits for itself
# What a fault in this process sends: blocked, it would end in a loop.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}


def stay_as_init() -> None:
    """Return in a child of process 1; process 1 itself stays here, and ends with the child's exit code.

    Does nothing where this process is not process 1. Must be called before there are threads. The kernel gives process
    1 every orphan, and drops signals to it that it does not handle; when it ends, the kernel ends what is left.
    """
    if os.getpid() != 1:
        return
    passed_on = signal.valid_signals() - _OWN - _FAULTS
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on | {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        _own_group()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    sys.exit(_serve(child, passed_on))


def _serve(child: int, passed_on: set[signal.Signals]) -> int:
    while True:
        number = signal.sigwait(passed_on | {signal.SIGCHLD})
        if number != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(child, number)
            continue
        code = _reap(child)
        if code is not None:
            return code


def _reap(child: int) -> int | None:
    """Every process that has ended; returns the exit code of `child` as a shell has it, None while it runs."""
    code = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                ended = os.waitstatus_to_exitcode(status)
                code = 128 - ended if ended < 0 else ended
    return code


def _own_group() -> None:
    """Ctrl-C goes to the whole foreground group: with process 1 in it, the program would get it twice."""
    os.setpgid(0, 0)
    if os.isatty(0):
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else taking the terminal would stop this process
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
