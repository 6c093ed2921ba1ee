"""Temporary folders of measurements: gone at the end, and those of a killed process with the next one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tide_cli.bench.scratch import scratch_folder
from tide_cli.file_locks import is_locked

_KILLED = """
import os, signal, sys
from pathlib import Path
from tide_cli.bench.scratch import scratch_folder
with scratch_folder(within=Path(sys.argv[1])) as folder:
    (folder / "state").mkdir()
    (folder / "state" / "ring").write_bytes(bytes(4096))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_in(place: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, place], check=False)


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    def fail_in(folder: Path) -> None:
        (folder / "file").touch()
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"), scratch_folder(within=tmp_path) as folder:
        fail_in(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    kill_in(tmp_path)
    (left,) = tmp_path.iterdir()
    with scratch_folder(within=tmp_path) as folder:
        assert not left.exists()
        assert [*tmp_path.iterdir()] == [folder]


def test_folders_in_use_and_those_of_others_stay(tmp_path: Path) -> None:
    kill_in(tmp_path)
    (left,) = tmp_path.iterdir()
    notes, link = tmp_path / "tide-bench-notes", tmp_path / "tide-bench-link"
    notes.mkdir()
    link.symlink_to(left.rename(tmp_path / "kept"))
    with (
        scratch_folder(within=tmp_path) as first,
        scratch_folder(within=tmp_path),
        scratch_folder("tide-demo-", tmp_path),
    ):
        assert first.is_dir()
        assert notes.is_dir()
    assert (link / "state" / "ring").is_file()
    assert notes.is_dir()


def test_a_folder_is_in_use_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree

    def watched(folder: Path, **more: Any) -> None:
        assert is_locked(folder / ".in-use")
        remove(folder, **more)

    monkeypatch.setattr("tide_cli.bench.scratch.shutil.rmtree", watched)
    with scratch_folder(within=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_removes_meanwhile_keeps_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("a", "b"):  # apart, or the second one would remove the first one's
        (tmp_path / place).mkdir()
        kill_in(tmp_path / place)
        (left,) = (tmp_path / place).iterdir()
        left.rename(tmp_path / left.name)
        (tmp_path / place).rmdir()
    first, _ = tmp_path.glob("*")

    def gone_at_first(mark: Path) -> bool:
        if mark.parent == first:
            shutil.rmtree(first)
        return is_locked(mark)

    monkeypatch.setattr("tide_cli.bench.scratch.is_locked", gone_at_first)
    with scratch_folder(within=tmp_path) as folder:
        assert [*tmp_path.iterdir()] == [folder]
