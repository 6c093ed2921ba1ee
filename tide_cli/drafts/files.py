"""Files that are on the disk once a function returns, not only in the kernel's hands."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_CHUNK = 8 * 2**20


def copy_file(source: Path, destination: Path) -> str:
    """Copies a file, flushed to the disk, mode 0600, and returns the sha256 of what was written."""
    digest = hashlib.sha256()
    with source.open("rb") as reading, open(_new_file(destination), "wb") as writing:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def write_file(path: Path, content: bytes) -> None:
    with open(_new_file(path), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
