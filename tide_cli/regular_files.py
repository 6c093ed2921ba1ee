"""Files that TIDE has made itself, where something else may stand in their place."""

from __future__ import annotations

import errno
from pathlib import Path


def check_regular(path: Path) -> None:
    """OSError where something is there that is no file: a pipe would be waited for. Nothing there is no error."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EISDIR if path.is_dir() else errno.EEXIST, "no file", str(path))
