"""`tide systemd`: the options of `tide up`, made fit for a unit."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer
from commands import tide
from scripted import make_target

from tide_cli.cli import register  # noqa: F401  attaches the commands
from tide_cli.cli import systemd as systemd_command
from tide_cli.cli.app import app


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `tide` of this test's own, since one is run as `python -m` here."""
    program = tmp_path / "tide"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(systemd_command.sys, "argv", [str(program)])


def started(output: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    app(args=["systemd", *map(str, arguments)], standalone_mode=False)
    return capsys.readouterr().out


def test_every_option_of_up_comes_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_target(tmp_path)
    (tmp_path / "tide.toml").write_text("cycle_tokens = 7\n")
    monkeypatch.chdir(tmp_path)
    given = ["--target", "tiny", "--state-dir", "s", "--config", "tide.toml", "--port", "1234", "--no-capture"]
    program, verb, *rest = started(printed(capsys, *given, "--spool-size", "2GiB", "--", "--page-size", "1"))
    assert (program, verb) == (str(tmp_path / "tide"), "up")
    up = typer.main.get_command(app).commands["up"]
    parsed = {name: value for name, value in up.make_context("up", rest).params.items() if value is not None}
    assert parsed == {
        "target": str(tmp_path / "tiny"),
        "state_dir": tmp_path / "s",
        "cache_dir": parsed["cache_dir"],
        "config": tmp_path / "tide.toml",
        "port": "1234",
        "capture": False,
        "spool_size": "2GiB",
        "sglang_arguments": ["--page-size", "1"],
        "detach": False,
        "wait": False,
    }
    assert parsed["cache_dir"].is_absolute()


def test_settings_of_the_shell_are_kept_and_secrets_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDE_CYCLE_TOKENS", "9")
    monkeypatch.setenv("HF_TOKEN", "secret")
    text = printed(capsys, "--user")
    assert 'Environment="TIDE_CYCLE_TOKENS=9"' in text
    assert "secret" not in text
    assert "User=" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "--host", "x"], "--host"),
        (["-d"], "-d"),
        (["--wait"], "--wait"),
        (["--port", "0"], "--port"),
        (["--bogus"], "--bogus"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], words: str) -> None:
    answer = tide("systemd", *arguments, TIDE_STATE_DIR=str(tmp_path))
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stdout == ""
