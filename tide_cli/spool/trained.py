"""How often each sample was trained on: the trainer's own SQLite file in the spool's folder.

The index has one writer, the engine; this file has the trainer. An id names the same sample only while the spool is
not made anew, so the time of creation is kept beside it. No torch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tide_cli.regular_files import check_database
from tide_cli.spool.samples import SampleInfo

TRAINED_FILE = "trained.db"
_TABLE = "create table if not exists trained (id integer primary key, created real not null, times integer not null)"
_COUNT = """
    insert into trained values (?, ?, 1) on conflict (id) do update
    set times = case created when excluded.created then times + 1 else 1 end, created = excluded.created
"""


def count_trained(folder: Path, infos: Iterable[SampleInfo], oldest_id: int) -> None:
    """One more time for each of `infos` (a sample may come more than once); forgets ids below `oldest_id`.

    A file that is no database, or another one, is made anew. sqlite3.Error, OSError where it cannot be written.
    """
    path = folder / TRAINED_FILE
    rows = [(info.id, info.created) for info in infos]
    try:
        _count(path, rows, oldest_id)
    except sqlite3.DatabaseError as error:
        of_the_statement = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR  # the table has other columns
        if isinstance(error, sqlite3.OperationalError) and not of_the_statement:  # the disk or a lock
            raise
        path.unlink(missing_ok=True)
        _count(path, rows, oldest_id)


def _count(path: Path, rows: list[tuple[int, float]], oldest_id: int) -> None:
    check_database(path)
    path.touch(mode=0o600)
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(_TABLE)
        connection.executemany(_COUNT, rows)
        connection.execute("delete from trained where id < ?", (oldest_id,))


def times_trained(folder: Path) -> dict[int, tuple[float, int]]:
    """Sample id -> (created, times); empty where nothing was trained or the file cannot be read."""
    path = folder / TRAINED_FILE
    if not path.is_file():
        return {}
    try:
        check_database(path)
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            rows = connection.execute("select id, created, times from trained")
            return {sample: (created, times) for sample, created, times in rows if isinstance(times, int)}
    except (sqlite3.Error, OSError):
        return {}
