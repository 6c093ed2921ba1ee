"""What is said while files come, and what is missing of them."""

from __future__ import annotations

from pathlib import Path

from tide_cli.targets.fetch import Progress, RemoteFile, missing_bytes

GIB = 2**30


def test_progress_of_each_file_and_of_all() -> None:
    now, said = [0.0], []
    progress = Progress(8 * GIB, said.append, clock=lambda: now[0])
    progress.had(2 * GIB)  # by an earlier start: no part of the rate
    now[0] = 4.0
    progress.moved("a", GIB, 4 * GIB, GIB)
    assert said == []
    now[0] = 8.0
    progress.moved("a", 2 * GIB, 4 * GIB, GIB)
    assert said == ["a: 2.00 GiB of 4.00 GiB; together 4.00 GiB of 8.00 GiB (256 MiB/s, 0 min left)"]
    progress.moved("b", GIB, GIB, GIB)  # the end of a file is always said
    assert said[1].startswith("b: 1.00 GiB of 1.00 GiB; together 5.00 GiB")
    now[0] = 20.0
    progress.moved("a", 0, 4 * GIB, -2 * GIB)  # begun anew
    assert "together 3.00 GiB of 8.00 GiB" in said[2]


def test_what_is_here_in_part_is_not_missing(tmp_path: Path) -> None:
    files = [RemoteFile(name, "", 100, name) for name in ("whole", "part", "none", "odd")]
    (tmp_path / "whole").write_bytes(bytes(100))
    (tmp_path / "part.incomplete").write_bytes(bytes(30))
    (tmp_path / "odd.incomplete").write_bytes(bytes(130))
    assert missing_bytes(files, tmp_path) == 70 + 100
