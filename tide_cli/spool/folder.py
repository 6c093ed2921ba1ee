"""The spool's folder: taking it for writing, and finding or making the ring in it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from tide_cli.errors import TideError, UsageError, reason
from tide_cli.file_locks import is_locked, take_lock
from tide_cli.folders import taken_back
from tide_cli.printable import size_words
from tide_cli.regular_files import SIDE_SUFFIXES
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.ring import RING_FILE, Ring

LOCK_FILE = "writer.lock"
INDEX_FILE = "index.db"
INDEX_FILES = (INDEX_FILE, *(INDEX_FILE + suffix for suffix in SIDE_SUFFIXES))
_REBUILDS = "`tide spool repair` rebuilds it"
_NOT_THE_CONTENTS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
}
_OTHER_KINDS = {errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOENT}  # of what stands where a file should be
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}  # the latter where there is no room for SQLite's side files


def open_ring(folder: Path, layout: RowLayout, size_bytes: int, max_sample_tokens: int) -> tuple[Ring, int]:
    """The ring in `folder` for writing, made where there is none, and the descriptor that holds the folder's lock.

    TideError: another writer, another layout, a ring damaged or too small for one sample, no room, no access.
    """
    with taken_back(folder):
        new = not (folder / LOCK_FILE).exists()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _take_lock(folder)
        except OSError as error:
            raise unusable(folder, error) from None
        try:
            try:
                ring = Ring.open(folder, writable=True)
            except FileNotFoundError:
                check_size(layout, size_bytes, max_sample_tokens)
                ring = Ring.create(folder, layout, size_bytes, before=lambda: _make_index(folder))
            _check_layout(folder, ring.layout, layout)
            check_size(layout, layout.size_for(ring.pages), max_sample_tokens, folder)
            return ring, lock
        except BaseException as error:
            if new and not (folder / RING_FILE).exists():
                for name in (*INDEX_FILES, LOCK_FILE):
                    (folder / name).unlink(missing_ok=True)
            os.close(lock)
            if isinstance(error, OSError | sqlite3.Error):
                raise unusable(folder, error) from error
            raise


def _make_index(folder: Path) -> None:
    """Before there is a ring: whoever finds one finds an index beside it, whenever its maker was killed."""
    from tide_cli.spool.index import SpoolIndex  # which needs this module

    SpoolIndex.create(folder).close()


def check_ring(folder: Path, layout: RowLayout, size_bytes: int, max_sample_tokens: int) -> None:
    """What `open_ring` would refuse later, inside the engine: said beforehand, with nothing written. TideError."""
    try:
        ring = Ring.open(folder)
    except (FileNotFoundError, NotADirectoryError):  # whoever makes the folder says what is in its way
        check_size(layout, size_bytes, max_sample_tokens)
        return
    except OSError as error:
        raise unusable(folder, error) from None
    try:
        _check_layout(folder, ring.layout, layout)
        check_size(layout, layout.size_for(ring.pages), max_sample_tokens, folder)
        free = os.statvfs(folder)
        if ring.unallocated() > free.f_bavail * free.f_frsize:
            raise unusable(folder, OSError(errno.ENOSPC, "no room for the holes of its ring"))
    finally:
        ring.close()


def ring_size(folder: Path) -> int | None:
    """Bytes of the ring in `folder`; None when there is none. TideError when it is damaged."""
    try:
        ring = Ring.open(folder)
    except OSError:
        return None
    size = ring.size_bytes
    ring.close()
    return size


def unusable(folder: Path, error: Exception) -> TideError:
    """The folder cannot be written or read, or what is in it."""
    why, remedy = reason(error), "mend it, or use another --state-dir"
    if is_full(error):
        remedy = "free some space there, or mend the disk"
    if isinstance(error, OSError) and error.filename and Path(error.filename) != folder:
        why = f"{Path(error.filename).name}: {why}"
        if Path(error.filename).name in INDEX_FILES and error.errno in _OTHER_KINDS:
            remedy = _REBUILDS
    if isinstance(error, sqlite3.Error):
        why = f"its index: {why}"
        remedy = _REBUILDS if is_damage(error, folder) else remedy
    return TideError(f"the spool folder {folder} cannot be used", why=why, remedy=remedy)


def is_full(error: BaseException | None) -> bool:
    """Whether the disk had no room."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_damage(error: sqlite3.Error, folder: Path) -> bool:
    """Whether the contents of the index in `folder` are to blame, and not the disk, its access rights or a lock."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:  # a damaged header says so as well
        return is_writable(folder) and is_writable(folder / INDEX_FILE)
    return code not in _NOT_THE_CONTENTS


def is_writable(path: Path) -> bool:
    """Whether this process may write there."""
    return os.access(path, os.W_OK, effective_ids=True)


def no_ring(folder: Path, error: OSError) -> TideError:
    """The ring in `folder` could not be opened: there is none, or something else is in its place."""
    if isinstance(error, FileNotFoundError):
        return TideError(
            f"there is no spool in {folder}", remedy="`tide up` makes one: serve something with capture on"
        )
    return unusable(folder, error)


def is_written(folder: Path) -> bool:
    """Whether a writer holds the spool in `folder`."""
    return is_locked(folder / LOCK_FILE)


def _take_lock(folder: Path) -> int:
    """The folder's writer lock; the kernel releases it when the process ends, however it ends."""
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        take_lock(lock)
    except BlockingIOError:
        os.close(lock)
        raise TideError(f"another process writes the spool in {folder}", remedy="stop it first: `tide down`") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _check_layout(folder: Path, found: RowLayout, wanted: RowLayout) -> None:
    if found != wanted:
        raise TideError(
            f"the spool in {folder} is of another kind",
            why=f"it holds rows of {_words(found)}; this engine writes rows of {_words(wanted)}",
            remedy=f"use another --state-dir, or delete {folder} to start an empty spool",
        )


def check_size(layout: RowLayout, size_bytes: int, max_sample_tokens: int, folder: Path | None = None) -> None:
    """UsageError where a ring of so many bytes holds no longest sample. folder: where one of that size lies already."""
    least = layout.size_for(layout.pages_for(max_sample_tokens))
    if size_bytes < least:
        other, larger = "set a smaller max_sample_tokens", f"--spool-size {-(-least // 2**20)}MiB is the least"
        sizes = [size_words(size_bytes), size_words(least)]
        if sizes[0] == sizes[1]:
            sizes = [f"{size_bytes:,} bytes", f"{least:,} bytes"]
        raise UsageError(
            f"a spool of {sizes[0]} {f'in {folder} ' if folder else ''}is too small",
            why=f"one sample of {max_sample_tokens} tokens takes {sizes[1]}",
            remedy=f"{other}, or delete {folder}: for a new one {larger}" if folder else f"{larger}, or {other}",
        )


def _words(layout: RowLayout) -> str:
    return f"{layout.target} (hidden size {layout.hidden_size}, page {layout.page_tokens}, format {layout.version})"
