"""Files that TIDE has made itself, where something else may stand in their place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

SIDE_SUFFIXES = ("-journal", "-wal", "-shm")  # of what SQLite puts beside a file
_LARGEST = 64 * 2**20  # bytes; a longer text is not what was meant, and a device has no end


def check_regular(path: Path) -> None:
    """OSError where something is there that is no file: a pipe would be waited for. Nothing there is no error."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EISDIR if path.is_dir() else errno.EEXIST, "no file", str(path))


def check_database(path: Path) -> None:
    """The same of an SQLite file and of those that SQLite opens beside it."""
    for suffix in ("", *SIDE_SUFFIXES):
        check_regular(path.with_name(path.name + suffix))


def read_named(path: Path, most: int = _LARGEST) -> str:
    """The text of a file, a pipe or a device that a user has named. Raises OSError; ValueError where it has more than
    `most` bytes, is no text, or a pipe to which nobody writes: that is not waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        os.set_blocking(file.fileno(), True)
        content = file.read(most + 1)
        if not content and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is a pipe, and nothing came out of it")
    if len(content) > most:
        raise ValueError(f"it has more than {most // 2**20} MiB")
    return content.decode()
