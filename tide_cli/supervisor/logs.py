"""The children's log files: opened for appending, kept within bounds, read from the end.

A child writes to the file itself. A pump in between would let a slow supervisor hold up the engine, so a log that
grows too large is copied aside and cut instead (`bound_log`). Nothing here reads more than a fixed amount into memory,
whatever the file holds: bytes that are no UTF-8 are replaced, a line may be as long as the file.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tide_cli.child_words import OURS, SAYS
from tide_cli.regular_files import check_regular

LOG_LIMIT = 32 * 2**20  # bytes; a log above it is put aside
_TAIL = 64 * 2**10  # bytes read to find out why a child ended
_BLOCK = 64 * 2**10  # bytes in memory while a log is read for a person
_FOLLOW_EVERY = 0.3  # seconds between two looks at a log that is followed
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)\b.*")
_LONGEST_WORDS = 300  # characters of a line that is shown as a reason


def open_log(path: Path) -> BinaryIO:
    """Append to a log only its owner can read; a large one is first put aside as NAME.1.

    Without a buffer: what a full disk does not take is lost at once, and closing the file then raises nothing.
    """
    if not path.is_char_device():  # a log may be thrown away
        check_regular(path)
    if path.exists() and path.stat().st_size > LOG_LIMIT:
        path.replace(_aside(path))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)


def bound_log(path: Path, limit: int = LOG_LIMIT) -> bool:
    """Put a log above `limit` bytes aside as NAME.1 while it is being written; whether that was done.

    The writers have it open for appending, so they go on at the start of the emptied file. What they write between the
    last read and the cut is lost: microseconds, once in many megabytes. A copy that fails leaves everything as it is.
    """
    copy = path.with_name(path.name + ".copy")
    try:
        if path.stat().st_size <= limit:
            return False
        with path.open("rb") as log, os.fdopen(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as to:
            shutil.copyfileobj(log, to, _BLOCK)
            to.flush()
            os.truncate(path, 0)
        copy.replace(_aside(path))
    except OSError:
        with suppress(OSError):
            copy.unlink(missing_ok=True)
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def read_tail(path: Path, start: int = 0, limit: int = _TAIL) -> str:
    """The end of a log since byte `start`, at most `limit` bytes, without colours; a redrawn line counts as several."""
    try:
        check_regular(path)
        size = path.stat().st_size
        with path.open("rb") as file:
            # after a rotation the file is shorter than it was
            file.seek(max(start if start <= size else 0, size - limit))
            text = file.read(limit).decode(errors="replace")
    except OSError:
        return ""
    return _CONTROL.sub("", text.replace("\r", "\n"))


def last_words(text: str) -> str:
    """Why a child ended, as far as the end of its log says.

    Lines that begin with `tide: ` are meant for people and win (there may be two); else the last line that names an
    exception; else the last line.
    """
    lines = _lines(text)
    if ours := own_words(text):
        return "\n".join(ours[-2:])
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or [""])[-1][:_LONGEST_WORDS]


def own_words(text: str) -> list[str]:
    """The lines in which the child itself says what is wrong and what to do."""
    return [line.removeprefix(OURS)[:_LONGEST_WORDS] for line in _lines(text) if line.startswith(OURS)]


def last_said(text: str) -> str | None:
    """What a child that fetches files says of its progress: the last of its `say …` lines; None where there is none."""
    said = [line.removeprefix(SAYS) for line in _lines(text) if line.startswith(SAYS)]
    return said[-1][:_LONGEST_WORDS] if said else None


def last_lines(text: str, count: int = 8, width: int = 200) -> list[str]:
    """The last `count` lines that are not empty, each cut to `width` characters."""
    return [line if len(line) <= width else line[: width - 1] + "…" for line in _lines(text)[-count:]]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_log(path: Path, lines: int, follow: bool, wait: Callable[[float], object] = time.sleep) -> Iterator[str]:
    """Pieces of text: the last `lines` lines, then, where `follow`, what is appended, until the caller stops.

    A file that was put aside or cut is read from its start.
    """
    check_regular(path)
    position = _start_of_last(path, lines)
    while True:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        with path.open("rb") as file:
            same = os.fstat(file.fileno()).st_ino
            file.seek(position)
            while True:
                while block := file.read(_BLOCK):
                    yield decoder.decode(block)
                position = file.tell()
                if not follow:
                    yield decoder.decode(b"", final=True)
                    return
                wait(_FOLLOW_EVERY)
                with suppress(OSError):  # between two files of that name there is none for a moment
                    now = path.stat()
                    if now.st_ino != same or now.st_size < position:
                        break
        position = 0


def _start_of_last(path: Path, lines: int) -> int:
    """The byte at which the last `lines` lines begin."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if lines <= 0:
            return end
        wanted, position = lines, end
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            # the newline that closes the last line begins none
            stop = len(block) - 1 if position + size == end and block.endswith(b"\n") else len(block)
            found = block.count(b"\n", 0, stop)
            if found < wanted:
                wanted -= found
                continue
            for _ in range(wanted):
                stop = block.rindex(b"\n", 0, stop)
            return position + stop + 1
    return 0
