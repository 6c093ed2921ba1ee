"""The children's log files: opened for appending, kept within bounds, and asked for their last words."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

_ROTATE_ABOVE = 32 * 2**20  # bytes; looked at when a child starts
_TAIL = 16 * 2**10  # bytes read for the last words
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OURS = "tide: "
_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)\b.*")


def open_log(path: Path) -> BinaryIO:
    """Append to a log only its owner can read; a large one is first put aside as NAME.1."""
    if path.exists() and path.stat().st_size > _ROTATE_ABOVE:
        path.replace(path.with_name(path.name + ".1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def last_words(path: Path, start: int = 0) -> str:
    """Why a child ended, as far as its log since byte `start` says.

    Lines that begin with `tide: ` are meant for people and win (there may be two); else the last line that names an
    exception; else the last line.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            # after a rotation the file is shorter than it was
            file.seek(max(start if start <= size else 0, size - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in _ANSI.sub("", text).splitlines() if line.strip()]
    if ours := [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]:
        return "\n".join(ours[-2:])
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or [""])[-1][:300]
