"""The detached supervisor, before its loop runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from scripted import scripted_settings
from scripted_process import ROOT, WITHIN

from tide_cli.errors import TideError
from tide_cli.supervisor.appliance import write_outcome
from tide_cli.supervisor.detach import wait_for

STARTING = """
import contextlib, sys, time
from tide_cli.supervisor import detach

@contextlib.contextmanager
def running_appliance(*_, **__):
    try:
        print("on the way up", flush=True)
        time.sleep(600)
        yield
    finally:
        print("nothing left", flush=True)

detach.check_machine, detach.running_appliance = lambda settings: None, running_appliance
sys.exit(detach.main())
"""


def test_an_end_on_the_way_up_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(scripted_settings(tmp_path, 31_998).model_dump_json())
    process.stdin.close()
    process.stdin = None
    assert process.stdout.readline() == "on the way up\n"
    process.terminate()
    assert process.communicate(timeout=WITHIN)[0] == "nothing left\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_one_that_ends_while_it_is_asked_is_not_one_that_is_silent(tmp_path: Path) -> None:
    settings = scripted_settings(tmp_path, 31_998)
    settings.paths.run.mkdir(parents=True)
    write_outcome(settings.paths, 1, "the draft is damaged")
    with socket.socket(socket.AF_UNIX) as listener, subprocess.Popen(["sleep", "0.5"]) as process:
        listener.bind(str(settings.paths.socket))
        listener.listen()
        threading.Thread(target=_hang_up, args=(listener,), daemon=True).start()
        with pytest.raises(TideError, match="the draft is damaged"):
            wait_for(settings, process, lambda status: True)
        listener.shutdown(socket.SHUT_RDWR)


def _hang_up(listener: socket.socket) -> None:
    """With what was asked still unread: those who ask see a reset."""
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return
