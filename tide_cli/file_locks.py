"""The lock of a file: taking it, and whether somebody holds it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_PAUSE = 0.01  # seconds between two tries
_LOOK = 0.2  # seconds; longer than anybody looks


def is_locked(path: Path) -> bool:
    """Whether a process holds this file's lock. The kernel releases it when the process ends, however it ends."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def take_lock(fd: int, patience: float = _LOOK) -> None:
    """Takes the lock of an open file. BlockingIOError where another process holds it for `patience` seconds; one that
    merely looks, as `is_locked` does, holds it for a moment."""
    for _ in range(round(patience / _PAUSE)):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
