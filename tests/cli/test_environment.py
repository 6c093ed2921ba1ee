"""Misspelt settings in the environment are noticed, and hints name the folder they need."""

from __future__ import annotations

from pathlib import Path

from commands import tide


def test_a_misspelt_variable_is_named() -> None:
    done = tide("config", TIDE_CYCLE_TOKNES="3")
    assert done.returncode == 0
    assert "TIDE_CYCLE_TOKNES" in done.stderr


def test_a_variable_that_is_a_setting_is_not() -> None:
    assert tide("config", TIDE_CYCLE_TOKENS="3").stderr == ""


def test_not_running_names_the_folder(tmp_path: Path) -> None:
    done = tide("ps", "--state-dir", tmp_path / "here")
    assert done.returncode == 3
    assert str(tmp_path / "here") in done.stderr


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    done = tide("paths", "--json", TIDE_STATE_DIR="", XDG_STATE_HOME=str(tmp_path))
    assert f'"state": "{tmp_path}/tide"' in done.stdout
