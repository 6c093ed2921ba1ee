"""The spool's counters and the figures of its requests, read without what writes them: no numpy, no torch."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ServedRequest:
    """One finished request: completion tokens that came out of its verify steps, by the draft `version`.

    domain: the label that its client gave it, "" for none.
    """

    id: int
    version: int
    tokens: int
    steps: int
    domain: str = ""


def served_requests(folder: Path, after: int) -> list[ServedRequest]:
    """Requests with ids above `after`, oldest first. `version` is the draft served when a request came in."""
    query = (
        "select id, draft_version, verify_steps + accepted, verify_steps, domain from samples"
        " where id > ? and verify_steps > 0 order by id"
    )
    return [ServedRequest(*row) for row in _select(folder, query, (after,))]


def newest_request(folder: Path) -> int:
    """The highest id in the index, 0 before there is one."""
    rows = _select(folder, "select max(id) from samples")
    return int(rows[0][0] or 0) if rows else 0


def held_out_samples(folder: Path, most: int) -> int:
    """Samples of the index that no draft is trained on, counted up to `most`; 0 before there is one."""
    rows = _select(folder, "select count(*) from (select 1 from samples where split = 'held_out' limit ?)", (most,))
    return int(rows[0][0]) if rows else 0


def spool_totals(folder: Path) -> dict[str, int]:
    """Counter name to value, from the table `counters` of the index (spool/index.py); empty before there is one."""
    return {str(name): int(value) for name, value in _select(folder, "select name, value from counters")}


def _select(folder: Path, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    index = folder / "index.db"
    if not index.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.Error:
        return []  # just being made, or made anew; the next look will tell
