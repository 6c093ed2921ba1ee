"""Temporary folders of measurements. What a killed one has left is removed by the next."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tide_cli.file_locks import is_locked, take_lock

BENCH = "tide-bench-"
_MARK = ".in-use"  # locked by the process that the folder belongs to; it appears with the lock on it


@contextmanager
def scratch_folder(prefix: str = BENCH, within: Path | None = None) -> Iterator[Path]:
    """A new folder, removed at the end, in `within` or where temporary files belong.

    Folders of the same prefix there whose process was killed are removed before. Raises OSError where none can be made.
    """
    sweep(within, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    with ExitStack() as lock:
        try:
            unlocked = folder / f"{_MARK}.new"
            mark = lock.enter_context(unlocked.open("x"))
            take_lock(mark.fileno())
            unlocked.rename(folder / _MARK)
            yield folder
        finally:
            # while it is locked: another process would take it for a left one and remove it too. What cannot be removed
            # now is left to the next one: a measurement must not fail at its very end
            shutil.rmtree(folder, ignore_errors=True)


def sweep(within: Path | None = None, prefix: str = BENCH) -> None:
    """Remove the folders of killed processes there, as `scratch_folder` does."""
    place = Path(tempfile.gettempdir()) if within is None else within
    try:
        found = list(place.glob(f"{prefix}*"))
    except OSError:
        return
    for folder in found:
        with suppress(OSError):  # another process may have removed it meanwhile
            if _is_left_over(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left_over(folder: Path) -> bool:
    mark = folder / _MARK
    ours = not folder.is_symlink() and mark.is_file() and folder.stat().st_uid == os.getuid()
    return ours and not is_locked(mark)
