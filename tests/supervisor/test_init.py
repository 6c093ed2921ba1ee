"""Process 1 of a container, in a process namespace of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_process import ROOT, WITHIN, ScriptedAppliance

NAMESPACE = ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"])]
NAMESPACE += ["--pid", "--fork", "--mount-proc", "--kill-child"]
try:
    allowed = subprocess.run([*NAMESPACE, "true"], capture_output=True, timeout=WITHIN).returncode == 0
except FileNotFoundError:
    allowed = False
pytestmark = pytest.mark.skipif(not allowed, reason="this machine allows no process namespaces")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

PROGRAM = """
import os, signal, subprocess, sys, time
from tide_cli.supervisor.init import stay_as_init
from tide_cli.supervisor.procfs import process_stat
stay_as_init()
assert os.getppid() == 1 and os.getpgrp() == os.getpid() != 1
# a grandchild that ends as an orphan
middle = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '']).pid)"
orphan = int(subprocess.check_output([sys.executable, "-c", middle]))
while process_stat(orphan) is not None:
    time.sleep(0.02)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.signal(signal.SIGUSR1, lambda *_: print("USR1", flush=True))
print("reaped", flush=True)
while True:
    signal.pause()
"""


def init_of(namespace: subprocess.Popen[str]) -> int:
    """Process 1, as it is called out here."""
    return int(Path(f"/proc/{namespace.pid}/task/{namespace.pid}/children").read_text())


def test_orphans_are_reaped_signals_passed_on_and_the_exit_code_kept() -> None:
    command = [*NAMESPACE, sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as namespace:
        try:
            assert namespace.stdout.readline() == "reaped\n"
            os.kill(init_of(namespace), signal.SIGUSR1)
            assert namespace.stdout.readline() == "USR1\n"
            os.kill(init_of(namespace), signal.SIGTERM)
            assert namespace.wait(timeout=WITHIN) == 7
        finally:
            namespace.kill()


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 137)])
def test_the_exit_code_as_a_shell_has_it(ending: str, code: int) -> None:
    program = f"import os, signal, sys\nfrom tide_cli.supervisor.init import stay_as_init\nstay_as_init()\n{ending}"
    done = subprocess.run([*NAMESPACE, sys.executable, "-c", program], env=ENVIRONMENT, timeout=WITHIN)
    assert done.returncode == code


def test_tide_itself_as_process_1() -> None:
    tide = [*NAMESPACE, sys.executable, "-m", "tide_cli"]
    done = subprocess.run([*tide, "version"], env=ENVIRONMENT, capture_output=True, text=True, timeout=WITHIN)
    assert (done.returncode, done.stdout[:5]) == (0, "tide ")
    assert subprocess.run([*tide, "bogus"], env=ENVIRONMENT, capture_output=True, timeout=WITHIN).returncode == 2


def test_an_appliance_ends_in_order(appliance: ScriptedAppliance) -> None:
    namespace = appliance.start(under=NAMESPACE)
    status = appliance.until(lambda status: status["state"] == "READY")
    assert status["pid"] != 1
    os.kill(init_of(namespace), signal.SIGTERM)
    output = namespace.communicate(timeout=WITHIN)[0]
    assert namespace.returncode == 0
    assert "stopping: interrupted" in output
    assert appliance.family() == []
