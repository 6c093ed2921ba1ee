"""history.db: what the appliance did, a row a second for an hour, 10 seconds for a day, a minute for 90 days.

One table, one writer, any number of readers. It is bounded by numbers of rows: hours in which the appliance did not
run, or a clock that jumps ahead, push nothing out. A clock that was set back makes what lies after it void. The file is
worth less than the serving: what is damaged is put aside and said, what cannot be written is said once and lost.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, reason
from tide_cli.regular_files import check_database
from tide_cli.telemetry.load import Buckets, Interval
from tide_cli.telemetry.rows import KEPT, STEPS, Row, combine, spans

_FORMAT = 1  # of the table: user_version of the file
_COLUMNS = (
    "seconds", "output", "input", "acceptance_length", "first_token", "later_token",
    "running", "queued", "kv_use", "spool_fill", "dropped", "version", "draft_steps",
)  # fmt: skip
_TABLE = (
    f"create table if not exists history (step integer, time integer, {', '.join(_COLUMNS)},"
    " primary key (step, time)) without rowid"
)
_PUT = f"insert or replace into history values ({', '.join('?' * (2 + len(_COLUMNS)))})"
_GET = f"select time, {', '.join(_COLUMNS)} from history where step = ? and time >= ? and time < ? order by time"


class History:
    """The writing end, for one thread at a time. say: told in words what went wrong; nothing else raises."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self._failing = False
        self._connection: sqlite3.Connection | None = None
        self._at: int | None = None  # the second of the newest row
        self._guarded(self._open)

    def add(self, row: Row) -> None:
        """A row of one second, or of a part of it. Those of ten seconds and of a minute come when these are over."""
        self._guarded(lambda: self._add(row))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
            self._failing = False
        except (sqlite3.OperationalError, OSError) as error:
            self._fail(error)  # a full disk, a lock and the like say nothing against the contents
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            self._put_aside(error)

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self._say(f"the history cannot be written, everything else goes on: {error}")

    def _put_aside(self, error: Exception) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        self.close()
        try:
            self._path.replace(aside)
            for ending in ("-wal", "-shm"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
            self._open()
        except (OSError, sqlite3.Error) as second:
            self._fail(second)
        else:
            self._say(f"the history was damaged ({error}) and begins anew; the old one is {aside}")

    def _open(self) -> None:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        # made by one thread and used by another, never by both at once
        connection = sqlite3.connect(self._path, timeout=1, isolation_level=None, check_same_thread=False)
        try:
            _check(connection)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")  # no wait for the disk: the last seconds may be lost
            connection.execute(_TABLE)
            connection.execute(f"pragma user_version = {_FORMAT}")
            newest = connection.execute("select max(time) from history where step = 1").fetchone()[0]
        except BaseException:
            connection.close()
            raise
        self._connection, self._at = connection, newest

    def _add(self, row: Row) -> None:
        if self._connection is None:
            self._open()
        connection = self._connection
        assert connection is not None
        connection.execute("begin")
        try:
            if self._at is not None and self._at > row.time:
                connection.execute("delete from history where time > ?", (row.time,))
            for finer, step in pairwise(STEPS):
                if self._at is not None and self._at // step != row.time // step:
                    self._roll_up(connection, finer, step, self._at // step * step)
            before = _rows(connection, 1, row.time, row.time + 1) if self._at == row.time else ()
            _put(connection, 1, combine([*before, row], row.time))
            if self._at is None or self._at // STEPS[-1] != row.time // STEPS[-1]:
                _forget(connection)
            connection.execute("commit")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("rollback")
            raise
        self._at = row.time

    @staticmethod
    def _roll_up(connection: sqlite3.Connection, finer: int, step: int, begin: int) -> None:
        if rows := list(_rows(connection, finer, begin, begin + step)):
            _put(connection, step, combine(rows, begin))


def read_history(path: Path, begin: float, end: float, step: int, span: int | None = None) -> list[Row]:
    """Rows of `step` seconds that begin in [begin, end), in order; none where there is no history. TideError.

    span: combine them to spans of so many seconds as they are read: 90 days of minutes would fill 500 MB.
    """
    if not path.exists():
        return []
    try:
        check_database(path)
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            _check_format(connection)
            rows = _rows(connection, step, int(begin), int(end))
            return list(rows if span is None else spans(rows, span))
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        if "no such table" in str(error):
            return []
        remedy = "the next `tide up` puts a damaged one aside and begins anew"
        raise TideError(f"cannot read the history {path}", why=reason(error), remedy=remedy) from None


def step_for(since: float) -> int:
    """The finest step that is kept for so many seconds back."""
    return next((step for step in STEPS if since <= step * KEPT[step]), STEPS[-1])


def _check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError where the file is none of ours or damaged."""
    answer = connection.execute("pragma quick_check(1)").fetchone()[0]
    if answer != "ok":
        raise sqlite3.DatabaseError(answer)
    _check_format(connection)


def _check_format(connection: sqlite3.Connection) -> None:
    form = connection.execute("pragma user_version").fetchone()[0]
    if form not in (0, _FORMAT):
        raise sqlite3.DatabaseError(f"format {form}, written by another version of TIDE")


def _forget(connection: sqlite3.Connection) -> None:
    for step, kept in KEPT.items():
        oldest = "select time from history where step = ? order by time desc limit 1 offset ?"
        connection.execute(f"delete from history where step = ? and time <= ({oldest})", (step, step, kept))


def _put(connection: sqlite3.Connection, step: int, row: Row) -> None:
    seen = row.observed
    sums: list[Any] = [None] * 6
    if seen is not None:
        buckets = [_pack(seen.first_token), _pack(seen.later_token)]
        sums = [seen.seconds, seen.output, seen.input, seen.acceptance_length, *buckets]
    rest = (row.running, row.queued, row.kv_use, row.spool_fill, row.dropped, row.version, row.draft_steps)
    connection.execute(_PUT, (step, row.time, *sums, *rest))


def _rows(connection: sqlite3.Connection, step: int, begin: int, end: int) -> Iterator[Row]:
    return map(_row, connection.execute(_GET, (step, begin, end)))


def _row(values: tuple[Any, ...]) -> Row:
    time, seconds, output, tokens_in, length, first, later, *rest = values
    seen = None if seconds is None else Interval(seconds, output, tokens_in, length, _unpack(first), _unpack(later))
    return Row(time, seen, *rest)


def _pack(buckets: Buckets) -> str | None:
    return json.dumps([[*ends, events] for ends, events in sorted(buckets.items())]) if buckets else None


def _unpack(text: str | None) -> dict[tuple[float, float], float]:
    return {(low, high): events for low, high, events in json.loads(text)} if text else {}
