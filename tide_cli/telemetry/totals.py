"""The spool's counters, read without what writes them: no numpy, no torch, a few megabytes in the supervisor."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def held_out_samples(folder: Path) -> int:
    """Samples of the index that no draft is trained on; 0 before there is one."""
    rows = _select(folder, "select count(*) from samples where split = 'held_out'")
    return int(rows[0][0]) if rows else 0


def spool_totals(folder: Path) -> dict[str, int]:
    """Counter name to value, from the table `counters` of the index (spool/index.py); empty before there is one."""
    return {str(name): int(value) for name, value in _select(folder, "select name, value from counters")}


def _select(folder: Path, query: str) -> list[tuple[Any, ...]]:
    index = folder / "index.db"
    if not index.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.Error:
        return []  # just being made, or made anew; the next look will tell
