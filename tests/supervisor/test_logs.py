"""Log files: their bounds, their ends, and what a person reads of them, whatever the children wrote."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from tide_cli.supervisor.logs import bound_log, last_lines, last_said, last_words, open_log, read_log, read_tail

LONG = 32 * 2**20  # bytes of a line that never ends
FEW = 4 * 2**20  # bytes of memory that reading it may take


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("one\ntwo\n", "two"),
        ("Traceback\n  File x\nValueError: no\nKilled\n", "ValueError: no"),
        ("noise\ntide: the disk is full\ntide: free some space\nmore noise\n", "the disk is full\nfree some space"),
        ("\x1b[31mred\x1b[0m\n", "red"),
        ("0%|   |\r50%|#  |\r100%|##|", "100%|##|"),
    ],
)
def test_last_words(tmp_path: Path, text: str, words: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"RuntimeError: of an earlier run\n" + text.encode())
    assert last_words(read_tail(log, len("RuntimeError: of an earlier run\n"))) == words


def test_what_a_child_says_of_its_progress() -> None:
    assert last_said("say one\nsay a.bin: 1 of 2 GiB\nnoise: say no\n") == "a.bin: 1 of 2 GiB"
    assert last_said("tide: no\n") is None


def test_the_tail_after_a_rotation_is_the_whole_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("new\n")
    assert read_tail(log, start=1000) == "new\n"
    assert read_tail(tmp_path / "none") == ""


def test_last_lines_are_few_and_short() -> None:
    text = "\n\n".join(["x" * 500, *map(str, range(20))]) + "\n"
    assert last_lines(text, count=3) == ["17", "18", "19"]
    assert last_lines("x" * 500, width=10) == ["xxxxxxxxx…"]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe\x00ValueError: \xc3\nRuntimeError: \xe2\x82\n")
    assert last_words(read_tail(log)) == "RuntimeError: \ufffd"
    assert "".join(read_log(log, 1, follow=False)) == "RuntimeError: \ufffd\n"


def test_a_line_without_an_end_takes_little_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(LONG)  # a hole of zeros: a line as long as the file
    tracemalloc.start()
    try:
        assert last_words(read_tail(log)) == ""
        assert sum(len(piece) for piece in read_log(log, 50, follow=False)) == LONG
        assert tracemalloc.get_traced_memory()[1] < FEW
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("lines", [0, 1, 2, 1999, 2000, 5000])
def test_the_last_lines_of_a_log(tmp_path: Path, lines: int, ending: str) -> None:
    log = tmp_path / "log"
    written = [f"{number} {'x' * (number % 97)}" for number in range(2000)]  # some blocks long
    log.write_text("\n".join(written) + ending)
    shown = "".join(read_log(log, lines, follow=False)).splitlines()
    assert shown == (written[-lines:] if lines else [])


def test_a_followed_log_goes_on_after_it_was_cut_or_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n")
    steps = iter(
        [
            lambda: log.write_bytes(b"old\nhalf \xe2\x82"),  # a character in two pieces
            lambda: log.write_bytes(b"old\nhalf \xe2\x82\xac\n"),
            lambda: bound_log(log, limit=1),
            lambda: log.write_bytes(b"cut\n"),
            lambda: (log.rename(tmp_path / "log.1"), log.write_bytes(b"replaced, and longer than before\n")),
        ]
    )

    def wait(_: float) -> None:
        next(steps)()

    shown: list[str] = []
    with pytest.raises(RuntimeError):  # what a generator makes of the StopIteration at the end of the steps
        shown.extend(read_log(log, 10, follow=True, wait=wait))
    assert "".join(shown) == "old\nhalf €\ncut\nreplaced, and longer than before\n"


def test_a_large_log_is_put_aside_while_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_log(log) as writer:
        writer.write(b"x" * 100)
        assert not bound_log(log, limit=100)
        writer.write(b"y\n")
        assert bound_log(log, limit=100)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "log.1").read_bytes() == b"x" * 100 + b"y\n"
    assert (tmp_path / "log.1").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]


def test_a_copy_that_fails_leaves_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 10)
    (tmp_path / "log.copy").symlink_to("/dev/full")
    assert not bound_log(log, limit=1)
    assert log.read_text() == "x" * 10
    assert os.listdir(tmp_path) == ["log"]


def test_a_full_disk_is_no_error_at_the_end() -> None:
    with open_log(Path("/dev/full")) as log, pytest.raises(OSError, match="No space"):
        log.write(b"lost\n")
    assert last_words(read_tail(Path("/dev/full"))) == ""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(log := tmp_path / "log")
    with pytest.raises(OSError, match="no file"):
        open_log(log)
    with pytest.raises(OSError, match="no file"):
        next(read_log(log, 5, follow=False))
    assert read_tail(log) == ""
    assert not bound_log(log)
