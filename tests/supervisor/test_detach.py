"""The detached supervisor, before its loop runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from scripted import scripted_settings
from scripted_process import ROOT, WITHIN

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
