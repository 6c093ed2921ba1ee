"""Whether somebody holds the lock of a file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


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
