"""The index of the spool: one SQLite row per finished sample, and totals that only grow.

The index is a cache of the ring's page table. It has one writer, the owner of the ring; WAL lets any number of
readers look at the same time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sqlite_utils import Database

from tide_cli.errors import TideError
from tide_cli.spool.samples import SampleInfo

INDEX_FILE = "index.db"

_COLUMNS = {
    "id": int,
    "run": str,
    "draft_version": int,
    "created": float,
    "tokens": int,
    "prompt_tokens": int,
    "prefix_missing": int,
    "verify_steps": int,
    "accepted": int,
    "split": str,
    "checksum": int,
    "pages": bytes,  # int32 little-endian each, in order
}


class SpoolIndex:
    """Samples and counters of one spool folder."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @classmethod
    def create(cls, folder: Path) -> SpoolIndex:
        """The writer's view; the file is made, or made anew where it is no database. sqlite3.Error when it cannot."""
        path = folder / INDEX_FILE
        try:
            return cls._create(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # the disk or a lock, not the contents
                raise
            for name in (path.name, path.name + "-wal", path.name + "-shm"):
                path.with_name(name).unlink(missing_ok=True)
            return cls._create(path)

    @classmethod
    def _create(cls, path: Path) -> SpoolIndex:
        path.touch(mode=0o600)  # before SQLite does with the umask's mode; its side files get the same
        path.chmod(0o600)
        # opened where the engine starts, used on the writer's thread
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            db = Database(connection, execute_plugins=False)
            db.enable_wal()
            # a killed process loses nothing; a power cut loses the last moments, which the ring's page table still has
            db.execute("PRAGMA synchronous = NORMAL")
            with db.atomic():
                db.table("samples").create(_COLUMNS, pk="id", if_not_exists=True)
                db.table("samples").create_index(["split", "id"], if_not_exists=True)
                db.table("counters").create({"name": str, "value": int}, pk="name", if_not_exists=True)
        except BaseException:
            connection.close()
            raise
        return cls(db)

    @classmethod
    def open(cls, folder: Path) -> SpoolIndex:
        """A reader's view. TideError when there is no index, or an unusable one."""
        path = folder / INDEX_FILE
        if not path.is_file():
            raise TideError(f"there is no spool in {folder}", remedy="serve something with capture on: tide up")
        connection = sqlite3.connect(path, check_same_thread=False, timeout=10)
        try:
            db = Database(connection, execute_plugins=False)
            db.execute("PRAGMA query_only = ON")
            if not db.table("counters").exists():
                raise sqlite3.DatabaseError("it has no counters")
        except sqlite3.Error as error:
            connection.close()
            raise _unusable(folder, error) from None
        return cls(db)

    def samples(self, *, split: str | None = None, newest: int | None = None, since_id: int = 0) -> list[SampleInfo]:
        """Finished samples with id > since_id, newest first, at most `newest` of them."""
        where, values = "id > ?", [since_id]
        if split is not None:
            where, values = where + " and split = ?", [since_id, split]
        rows = self._db.table("samples").rows_where(where, values, order_by="id desc", limit=newest)
        return [_info(row) for row in rows]

    def totals(self) -> dict[str, int]:
        """The counters: samples and tokens stored, requests dropped by cause. They only grow."""
        return {row["name"]: row["value"] for row in self._db.table("counters").rows}

    def commit(self, added: Iterable[SampleInfo], removed: Iterable[int], totals: Mapping[str, int]) -> None:
        """New samples, ids of samples that are gone, and the counters, in one transaction. sqlite3.Error on failure."""
        with self._db.atomic():
            # plain statements: this runs for every finished request, and the helpers look at the schema each time
            self._db.conn.executemany("delete from samples where id = ?", [(sample,) for sample in removed])
            columns, marks = ", ".join(_COLUMNS), ", ".join("?" * len(_COLUMNS))
            self._db.conn.executemany(
                f"insert or replace into samples ({columns}) values ({marks})", [_row(info) for info in added]
            )
            self._db.conn.executemany(
                "insert or replace into counters (name, value) values (?, ?)", list(totals.items())
            )

    def close(self) -> None:
        self._db.close()


def read_totals(folder: Path) -> dict[str, int]:
    """The counters of the spool in `folder`, without opening the ring (and without torch). TideError: no spool."""
    index = SpoolIndex.open(folder)
    try:
        return index.totals()
    except sqlite3.Error as error:
        raise _unusable(folder, error) from None
    finally:
        index.close()


def _row(info: SampleInfo) -> tuple[Any, ...]:
    pages = np.asarray(info.pages, "<i4").tobytes()
    return tuple(pages if name == "pages" else getattr(info, name) for name in _COLUMNS)


def _info(row: Mapping[str, Any]) -> SampleInfo:
    return SampleInfo(**{**row, "pages": tuple(np.frombuffer(row["pages"], "<i4").tolist())})


def _unusable(folder: Path, error: sqlite3.Error) -> TideError:
    remedy = "stop the appliance and start it again: the index is rebuilt from the ring"
    return TideError(f"the index of the spool in {folder} cannot be read", why=str(error), remedy=remedy)
