from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from tide_cli.bench.results import Results
from tide_cli.errors import UsageError


def test_parts_are_there_again(tmp_path: Path) -> None:
    with Results.begin(tmp_path / "sub" / "r.jsonl", "matrix", {"plan": {"n": 1}}) as begun:
        begun.add({"a": 1})
        begun.add({"a": 2})
    with Results.resume(begun.path, "matrix") as again:
        assert (again.head, again.parts) == ({"plan": {"n": 1}}, [{"a": 1}, {"a": 2}])
        again.add({"a": 3})
    assert Results.resume(begun.path, "matrix").parts == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_one_at_a_time_goes_on(tmp_path: Path) -> None:
    path = Results.begin(tmp_path / "r.jsonl", "matrix", {}).path
    read = Results.resume(path, "matrix")
    with Results.resume(path, "matrix") as first:
        for go_on in (lambda: Results.resume(path, "matrix"), read.__enter__):
            with pytest.raises(UsageError, match="another process measures into"):
                go_on()
        first.add({"a": 1})
    with pytest.raises(UsageError, match="another process measures into"):  # it has, since that was read
        read.__enter__()
    with Results.resume(path, "matrix") as second:
        assert second.parts == [{"a": 1}]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    with Results.begin(tmp_path / "r.jsonl", "matrix", {}) as begun:
        begun.add({"a": 1})
    with begun.path.open("a") as file:
        file.write('{"a": 2, "text": "ü')
    with Results.resume(begun.path, "matrix") as again:
        assert again.parts == [{"a": 1}]
        again.add({"a": 3})
    assert Results.resume(begun.path, "matrix").parts == [{"a": 1}, {"a": 3}]


def test_line_ends_of_another_system_lose_nothing(tmp_path: Path) -> None:
    with Results.begin(tmp_path / "r.jsonl", "matrix", {}) as begun:
        begun.add({"a": 1})
        begun.add({"a": 2})
    begun.path.write_bytes(begun.path.read_bytes().replace(b"\n", b"\r\n"))
    for _ in range(2):
        assert Results.resume(begun.path, "matrix").parts == [{"a": 1}, {"a": 2}]


def test_figures_that_are_no_numbers_can_be_gone_on_with(tmp_path: Path) -> None:
    with Results.begin(tmp_path / "r.jsonl", "matrix", {}) as begun:
        begun.add({"a": float("nan")})
    assert Results.resume(tmp_path / "r.jsonl", "matrix").parts == [{"a": None}]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    Results.begin(tmp_path / "r.jsonl", "matrix", {})
    with pytest.raises(UsageError, match="exists already"):
        Results.begin(tmp_path / "r.jsonl", "matrix", {})


def test_a_file_that_cannot_be_filled_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    made = Path.open

    def full(path: Path, mode: str) -> io.StringIO:
        made(path, mode).close()
        return Full()

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UsageError, match="cannot write"):
        Results.begin(tmp_path / "r.jsonl", "matrix", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]\n", "{}\n", '{"bench": "adapt"}\n', "7\n", "nothing\n", "[" * 10**5])
def test_what_is_no_file_of_results(content: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(content)
    with pytest.raises(UsageError, match="is no file of"):
        Results.resume(tmp_path / "r.jsonl", "matrix")
    with pytest.raises(UsageError, match="cannot read"):
        Results.resume(tmp_path / "absent.jsonl", "matrix")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match="cannot read"):
        Results.resume(tmp_path / "pipe.jsonl", "matrix")
    with pytest.raises(UsageError, match="cannot write"):
        Results.begin(tmp_path / "r.jsonl" / "below", "matrix", {})
