"""The spool's counters, read without what writes them: no numpy, no torch, a few megabytes in the supervisor."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def spool_totals(folder: Path) -> dict[str, int]:
    """Counter name to value, from the table `counters` of the index (spool/index.py); empty before there is one."""
    index = folder / "index.db"
    if not index.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            return {str(name): int(value) for name, value in connection.execute("select name, value from counters")}
    except sqlite3.Error:
        return {}  # just being made, or made anew; the next look will tell
