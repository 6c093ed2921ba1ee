from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tide_cli.errors import reason
from tide_cli.json_files import checked, finite, json_object, read_object


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not JSON (line 1, column 1)"),
        ("[1]", "it is no JSON object"),
        ("null", "it is no JSON object"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e400}', "1e400 is too large a number"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5000 digits"),
    ],
    ids=range(8),
)
def test_what_is_no_object_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the words are looked at below
        json_object(text)
    assert reason(refused.value) == words


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        read_object(tmp_path / "a.json")
    assert reason(refused.value) == "it is not a text"


@dataclass(frozen=True)
class Kind:
    number: int
    texts: tuple[str, ...] = ()


def test_fields_have_their_types() -> None:
    assert checked(Kind, {"number": 7, "texts": ["a"]}) == Kind(7, ("a",))
    for values, words in (({}, "number is missing"), ({"number": [1]}, "number is not what it should be")):
        with pytest.raises(ValueError, match=words):
            checked(Kind, values)


def test_what_json_cannot_say_is_null() -> None:
    value = {"a": [1.5, float("nan")], "b": (float("inf"), "x", 3), "c": True}
    assert finite(value) == {"a": [1.5, None], "b": [None, "x", 3], "c": True}


def test_words_for_what_python_says() -> None:
    for text in ("9" * 5000, "a\0b"):
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            int(text) if text.isdigit() else Path(text).stat()
        assert "4300" not in reason(refused.value)
        assert "null byte" not in reason(refused.value)


@pytest.mark.parametrize(("make", "words"), [(os.mkfifo, "something else is in its place"), (Path.mkdir, "a folder")])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    make(tmp_path / "x.json")
    with pytest.raises(OSError, match="no file") as refused:
        read_object(tmp_path / "x.json")
    assert words in reason(refused.value).lower()
    with pytest.raises(FileNotFoundError):
        read_object(tmp_path / "nowhere.json")
