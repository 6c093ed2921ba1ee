"""tide.db: every decision as one row of `events`, and the one row of `served`. Written by the supervisor alone.

events: id, time (unix seconds), kind, text (words), data (JSON object: the inputs of the decision)
served: id = 1, version, since (unix seconds)
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, reason
from tide_cli.hints import spelt
from tide_cli.printable import printable
from tide_cli.regular_files import check_database

_TABLES = (
    "create table if not exists events"
    " (id integer primary key, time real not null, kind text not null, text text not null, data text not null)",
    "create table if not exists served (id integer primary key, version integer not null, since real not null)",
)

_LATEST = 1e13  # unix seconds; a later time is no time


class Journal:
    """The writing end, for the thread that made it.

    Plain sqlite3: importing sqlite-utils brings pandas along where that is installed, 80 MB in a small process.
    """

    def __init__(self, path: Path) -> None:
        """Open or create. Raises TideError where the file is no database of ours."""
        _check(path)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(path, timeout=5, isolation_level=None)
            self._connection.execute("pragma journal_mode = wal")
            for statement in _TABLES:
                self._connection.execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from None

    def note(self, kind: str, text: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Add an event; returns it with id and time, data as a dict."""
        moment = time.time()
        cursor = self._connection.execute(
            "insert into events (time, kind, text, data) values (?, ?, ?, ?)",
            (moment, kind, text, json.dumps(dict(data))),
        )
        return {"id": cursor.lastrowid, "time": moment, "kind": kind, "text": text, "data": dict(data)}

    def serve(self, version: int) -> None:
        """Record the version that the engine has confirmed."""
        self._connection.execute("insert or replace into served values (1, ?, ?)", (version, time.time()))

    def close(self) -> None:
        self._connection.close()


def read_events(
    path: Path, *, after: int = 0, newest: int | None = None, kind: str | None = None, since: float = 0.0
) -> list[dict[str, Any]]:
    """Events in order of time, with ids above `after`; at most the `newest` ones. Empty where there is no journal.

    since: unix second of the oldest.
    """
    where, values = "id > ? and time >= ?", [after, since]
    if kind is not None:
        where, values = where + " and kind = ?", [*values, kind]
    limit = -1 if newest is None else newest
    rows = _select(
        path, f"select id, time, kind, text, data from events where {where} order by id desc limit ?", [*values, limit]
    )
    names = ("id", "time", "kind", "text", "data")
    try:
        found = [{**dict(zip(names, row, strict=True)), "data": json.loads(row[4])} for row in reversed(rows)]
    except (TypeError, ValueError, RecursionError) as error:
        raise _unusable(path, error) from None
    if not all(map(_is_event, found)):
        raise _unusable(path, ValueError("it holds an event that can be none"))
    return found


def read_served(path: Path) -> int | None:
    """The version served now, or last; None where none ever was."""
    rows = _select(path, "select version from served where id = 1", [])
    if rows and not isinstance(rows[0][0], int):
        raise _unusable(path, ValueError("the served version is no number"))
    return rows[0][0] if rows else None


def was_paused(path: Path) -> bool:
    """Whether the last word of the user was to pause training: it holds over restarts."""
    last = {kind: read_events(path, newest=1, kind=kind) for kind in ("pause", "resume")}
    paused, resumed = (events[0]["id"] if events else 0 for events in (last["pause"], last["resume"]))
    return paused > resumed


def unfinished_trial(path: Path) -> Mapping[str, Any] | None:
    """The watch over the version that was swapped in last, as it began; None where it has ended, or there was none."""
    swaps = read_events(path, newest=1, kind="swap")
    watch = swaps[0]["data"].get("watch") if swaps else None
    over = watch is None or read_events(path, after=swaps[0]["id"], newest=1, kind="trusted")
    return None if over else watch


def _select(path: Path, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    _check(path)
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return []
        raise _unusable(path, error) from None


def _check(path: Path) -> None:
    """TideError where it is no file."""
    try:
        check_database(path)
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: Exception) -> TideError:
    remedy = "`tide down`, then move it away; drafts and spool do not depend on it"
    return TideError(f"cannot use {path}", why=reason(error), remedy=remedy)


def _is_event(event: dict[str, Any]) -> bool:
    moment, text, data = event["time"], event["text"], event["data"]
    possible = isinstance(moment, int | float) and 0 <= moment < _LATEST
    return possible and isinstance(text, str) and isinstance(data, dict)


def event_line(event: dict[str, Any]) -> str:
    """An event as one line of a log, in local time; hints are spelt out."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
    return f"{moment} {printable(spelt(str(event['text'])))}"
