"""Files, pipes and devices that a user names."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from tide_cli.regular_files import read_named


@pytest.mark.timeout(20)
def test_a_pipe_is_read_where_somebody_writes_and_else_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(ValueError, match="nothing came out of it"):
        read_named(pipe)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as end:
        ending = Thread(target=lambda: (end.write("a = 1" * 100_000), end.close()))  # more than a pipe holds
        ending.start()
        assert read_named(Path(f"/dev/fd/{reading}")) == "a = 1" * 100_000
        ending.join()
    os.close(reading)


def test_neither_a_folder_nor_what_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_named(tmp_path / "empty") == read_named(Path(os.devnull)) == ""
    with pytest.raises(ValueError, match="more than 64 MiB"):
        read_named(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        read_named(tmp_path)
