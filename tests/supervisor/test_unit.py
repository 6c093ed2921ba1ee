"""The systemd unit, and what systemd itself says of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tide_cli.supervisor.unit import render_unit


def unit(command: list[str], user: str | None = "root", **environment: str) -> str:
    return render_unit(command, environment, target="smollm2-135m", stop_timeout=20.0, user=user)


def test_a_system_unit() -> None:
    lines = unit(["/opt/tide", "up", "--port", "1"], user="anna", TIDE_PORT="1").splitlines()
    for line in (
        "ExecStart=/opt/tide up --port 1",
        'Environment="TIDE_PORT=1"',
        "User=anna",
        "KillMode=mixed",
        "TimeoutStopSec=50",
        "RestartPreventExitStatus=2",
        "WantedBy=multi-user.target",
    ):
        assert line in lines


def test_a_users_unit_names_no_user_and_no_system_target() -> None:
    text = unit(["/opt/tide", "up"], user=None)
    assert "User=" not in text
    assert "network-online" not in text
    assert "WantedBy=default.target" in text


def test_nothing_in_an_argument_means_something_to_systemd() -> None:
    text = unit(["/opt/tide", "up", "--target", 'a b%h$HOME"\\'], A='x%i "y"')
    assert 'ExecStart=/opt/tide up --target "a b%%h$$HOME\\"\\\\"' in text
    assert 'Environment="A=x%%i \\"y\\""' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("user", ["root", None])
def test_systemd_accepts_it(tmp_path: Path, user: str | None) -> None:
    file = tmp_path / "tide.service"
    file.write_text(unit([sys.executable, "up", "--target", "a b%h$HOME"], user=user, A="x %i"))
    manager = [] if user else ["--user"]
    answer = subprocess.run(
        ["systemd-analyze", *manager, "verify", str(file)],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
