"""An appliance without a terminal: a supervisor in a session of its own, and how to wait for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tide_cli.errors import NotRunningError, TideError
from tide_cli.exec_child import bind_life
from tide_cli.file_locks import is_locked
from tide_cli.settings import Settings
from tide_cli.supervisor.appliance import (
    check_machine,
    check_settings,
    outcome_error,
    outcome_file,
    read_outcome,
    run_with_signals,
    running_appliance,
)
from tide_cli.supervisor.control_client import NoAnswerError, ask
from tide_cli.supervisor.lock import StateLock, already_runs, make_private
from tide_cli.supervisor.logs import open_log

_PATIENCE = 60.0  # seconds without an answer from one that listens
_POLL = 0.1  # seconds between two questions to a supervisor that is coming up


def start_detached(settings: Settings, *, bound: bool = False) -> subprocess.Popen[bytes]:
    """Start the supervisor; it goes on when this process and its terminal are gone, unless it is `bound` to it.

    Raises TideError for what can be seen to be wrong beforehand, another appliance on the state folder included.
    """
    check_settings(settings)
    paths = settings.paths
    for folder in (paths.state, paths.run, paths.logs):
        make_private(folder)
    StateLock(paths.lock).release()  # the supervisor takes it itself; this says at once whose it is
    outcome_file(paths).unlink(missing_ok=True)
    with open_log(paths.logs / "supervisor.log") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tide_cli.supervisor.detach", *([str(os.getpid())] if bound else [])],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # by a pipe and not by a file in the folder: two starts at the same moment must not read each other's
    with process.stdin, suppress(BrokenPipeError):  # one that ended at once says why in its log
        process.stdin.write(settings.model_dump_json().encode())
    return process


def wait_for(
    settings: Settings, process: subprocess.Popen[bytes], enough: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait until the status is `enough`, and return it. Raises TideError with the reason the supervisor ended for, or
    where it is silent."""
    answered = time.monotonic()
    while True:
        try:
            status = ask(settings.paths.socket, "GET", "/v1/status", timeout=10)
            if status["pid"] != process.pid:
                raise already_runs(settings.paths.lock)
            if enough(status):
                return status
        except NotRunningError:  # not yet, or not any more
            answered = time.monotonic()
        except NoAnswerError:  # it is just ending, or busy
            if time.monotonic() - answered > _PATIENCE:
                raise
        else:
            answered = time.monotonic()
        try:
            process.wait(timeout=_POLL)
        except subprocess.TimeoutExpired:
            continue
        if is_locked(settings.paths.lock):  # not ours, which has ended
            raise already_runs(settings.paths.lock)
        raise outcome_error(read_outcome(settings.paths) or {"reason": f"the supervisor ended ({process.returncode})"})


def main() -> int:
    """The detached supervisor itself; what it prints goes to its log, where the events go anyway.

    An argument is the pid of the process whose end is to end the appliance in order.
    """
    if len(sys.argv) > 1:
        bind_life(int(sys.argv[1]), int(signal.SIGTERM))
    # until `run_with_signals` takes them over: an end in the middle of the way up leaves nothing behind either
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    settings = Settings(**json.load(sys.stdin))
    os.umask(0o077)
    try:
        with running_appliance(check_machine(settings), on_event=lambda event: None) as supervisor:
            return run_with_signals(supervisor)
    except TideError as error:
        print("\n".join(error.lines()), flush=True)
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
