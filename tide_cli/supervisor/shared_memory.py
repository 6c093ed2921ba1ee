"""SGLang's load table in /dev/shm: named at random, and left behind when its processes are killed, which they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_LOAD_TABLE = re.compile(rb"/dev/shm/sglang_loads_[\w.-]+\.shm$", re.MULTILINE)


def load_tables(pids: Iterable[int], proc: Path = Path("/proc")) -> set[Path]:
    """The tables that these processes have mapped: nothing in a name says whose it is."""
    found: set[Path] = set()
    for pid in pids:
        with suppress(OSError):  # ended meanwhile
            found |= {Path(name.decode()) for name in _LOAD_TABLE.findall((proc / str(pid) / "maps").read_bytes())}
    return found


def recorded_tables(names: Any) -> set[Path]:
    """What a record calls tables; whatever cannot be one is left out."""
    found = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return {Path(name) for name in found if _LOAD_TABLE.fullmatch(os.fsencode(name))}


def remove_tables(tables: Iterable[Path]) -> None:
    """For when every process that had them mapped has ended."""
    for table in tables:
        with suppress(OSError):
            table.unlink(missing_ok=True)
