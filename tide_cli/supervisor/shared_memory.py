"""Shared memory in /dev/shm, named at random, which stays behind when its processes are killed, which they are.

SGLang's load table, and the named semaphores of Python's multiprocessing (tqdm's lock is one): SGLang ends by killing
all of its processes, among them the resource tracker, whose task it would be to remove those.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_SHM = Path("/dev/shm")
_LOAD_TABLE = re.compile(rb"/dev/shm/sglang_loads_[\w.-]+\.shm$", re.MULTILINE)
_SEMAPHORE = re.compile(rb"/dev/shm/sem\.mp-\w+$")
# glibc makes one under another name, which stays in the maps of its maker: the inode is what tells
_ANY_SEMAPHORE = re.compile(rb" ([0-9a-f]+):([0-9a-f]+) (\d+) +/dev/shm/sem\.\S+(?: \(deleted\))?$", re.MULTILINE)


def shared_memory_of(pids: Iterable[int], proc: Path = Path("/proc"), shm: Path = _SHM) -> set[Path]:
    """The tables and semaphores that these processes have mapped: nothing in a name says whose it is."""
    found: set[Path] = set()
    inodes: set[tuple[int, int]] = set()
    for pid in pids:
        with suppress(OSError):  # ended meanwhile
            maps = (proc / str(pid) / "maps").read_bytes()
            found |= {Path(name.decode()) for name in _LOAD_TABLE.findall(maps)}
            for major, minor, inode in _ANY_SEMAPHORE.findall(maps):
                inodes.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    for semaphore in shm.glob("sem.mp-*") if inodes else ():
        with suppress(OSError):  # removed meanwhile
            seen = semaphore.lstat()
            if (seen.st_dev, seen.st_ino) in inodes:
                found.add(semaphore)
    return found


def recorded_shared_memory(names: Any) -> set[Path]:
    """What a record calls tables; whatever cannot be one is left out."""
    found = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return {Path(n) for n in found if _LOAD_TABLE.fullmatch(os.fsencode(n)) or _SEMAPHORE.fullmatch(os.fsencode(n))}


def remove_shared_memory(tables: Iterable[Path]) -> None:
    """For when every process that had them mapped has ended."""
    for table in tables:
        with suppress(OSError):
            table.unlink(missing_ok=True)
