"""One appliance per state folder, by a lock that the kernel gives back when its holder ends, however it ends."""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, reason
from tide_cli.file_locks import take_lock
from tide_cli.json_files import read_object
from tide_cli.regular_files import check_regular


def make_private(folder: Path) -> None:
    """Create a folder only its owner can enter: what lies in it was said by the users.

    One that is there keeps its mode: it need not be TIDE's, and the files in it are private by themselves. Raises
    TideError where it cannot be made, or where another user can write in it, who could replace those files.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise TideError(
            f"cannot use the folder {folder}",
            why=reason(error),
            remedy="pass --state-dir with a folder you can write to",
        ) from None
    if os.geteuid() not in (0, found.st_uid):
        raise TideError(
            f"the folder {folder} is not yours",
            why=f"it belongs to user {found.st_uid}, you are user {os.geteuid()}",
            remedy="pass --state-dir with a folder of your own, or do this as that user",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise TideError(
            f"others may write in the folder {folder}",
            why=f"its mode is {stat.S_IMODE(found.st_mode):o}",
            remedy=f"`chmod go-w {folder}`, or pass --state-dir with another one",
        )


class StateLock:
    """The lock of a state folder, held until `release` or the end of the process. Children do not inherit it.

    Whoever has made its file removes it again: a folder is left as it was found.
    """

    def __init__(self, path: Path, **facts: Any) -> None:
        """Take the lock. Raises TideError, naming the holder, where another appliance or command has it.

        facts: see `describe`; `command`: what holds the lock where that is no appliance, as in `tide COMMAND`.
        """
        self._path = path
        self._made = False
        try:
            check_regular(path)
            self._fd = self._open()
            self._folder = os.stat(path.parent)
        except OSError as error:
            raise TideError(
                f"cannot open the lock {path}",
                why=reason(error),
                remedy="remove it, or pass --state-dir with a folder you can write to",
            ) from None
        try:
            take_lock(self._fd)
            if not self._is_the_file():  # its holder has removed it meanwhile: it says nothing any more
                raise BlockingIOError
        except OSError:
            os.close(self._fd)
            raise already_runs(path) from None
        self.describe(pid=os.getpid(), **facts)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(self._path, flags)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)  # the lock is none the worse for it
        with suppress(FileExistsError):  # made by another one in this very moment
            fd = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            self._made = True
            return fd
        return os.open(self._path, flags)

    def _is_the_file(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def in_place(self) -> bool:
        """Whether the folder at its path is still the one that is locked, by the same file: nothing of it was removed,
        moved or replaced. A disk that does not answer is still there."""
        try:
            return os.path.samestat(os.stat(self._path.parent), self._folder) and self._is_the_file()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def describe(self, **facts: Any) -> None:
        """Write down who holds the lock, for messages and `tide ps`; a full disk costs the words, not the lock."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(facts).encode(), 0)

    def release(self, *, remove: bool = False) -> None:
        """remove: its file too, which a killed holder has left."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            if (self._made or remove) and self._is_the_file():
                self._path.unlink(missing_ok=True)
        os.close(self._fd)


def already_runs(path: Path) -> TideError:
    """Another appliance, or a command that keeps appliances away meanwhile, holds the lock at `path`."""
    holder = read_holder(path)
    pid, command = holder.get("pid", "unknown"), holder.get("command")
    if command:
        return TideError(
            f"`tide {command}` is at work on {path.parent} (pid {pid})", remedy="try again when it is done"
        )
    return TideError(
        f"an appliance already runs on {path.parent} (pid {pid})",
        remedy="`tide down` ends it; a second appliance needs its own --state-dir and --port",
    )


def read_holder(path: Path) -> dict[str, Any]:
    """What the lock's holder wrote; empty where nobody did."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return {}
