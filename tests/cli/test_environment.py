"""Misspelt settings in the environment are noticed, and hints name the folder they need."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import tide


def test_a_home_of_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("port = 30123\n")
    done = tide("config", "--json", HOME=str(tmp_path), TIDE_CONFIG="~/mine.toml")
    assert done.returncode == 0, done.stderr
    assert '"value": 30123' in done.stdout


def test_a_default_that_cannot_be_used_is_not_blamed_on_a_file() -> None:
    done = tide("config", XDG_CACHE_HOME="/a\x07b")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert "the default of cache_dir" in done.stderr
    assert "XDG_CACHE_HOME" in done.stderr


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


@pytest.mark.parametrize("command", [["up"], ["ps"], ["down"], ["status"], ["drafts", "use", "1"], ["plan"]])
def test_folders_too_long_for_a_socket_are_refused_before_anything_starts(command: list[str], tmp_path: Path) -> None:
    """The kernel takes 107 bytes; what is beyond them would end the supervisor when it opens its control socket."""
    state, temporary = tmp_path / ("s" * 100), tmp_path / ("t" * 100)
    temporary.mkdir()
    done = tide(*command, "--state-dir", state, TMPDIR=str(temporary))
    assert done.returncode == 2
    what, remedy = done.stderr.splitlines()
    assert "at most 107 bytes" in what
    assert "TMPDIR" in remedy
    assert not state.exists()
    assert not any(temporary.iterdir())


def test_a_long_temporary_folder_is_of_no_account_beside_a_short_state_folder(tmp_path: Path) -> None:
    temporary = tmp_path / ("t" * 100)
    temporary.mkdir()
    state = Path("/tmp/tide-short")  # nothing is written there
    assert tide("ps", "--state-dir", state, TMPDIR=str(temporary)).returncode == 3
    assert not state.exists()
