"""The index of the spool: one SQLite row per finished sample, and totals that only grow.

The index is a cache of the ring's page table. It has one writer, the owner of the ring; WAL lets any number of
readers look at the same time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sqlite_utils import Database
from sqlite_utils.db import NoTable

from tide_cli.errors import TideError, reason
from tide_cli.regular_files import check_database
from tide_cli.spool.folder import INDEX_FILE, INDEX_FILES, is_damage, is_full, is_writable, is_written, no_ring
from tide_cli.spool.ring import RING_FILE
from tide_cli.spool.samples import SampleInfo

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
    "generations": bytes,  # uint64 little-endian each, in the order of the pages
    "cut": int,
    "reused": int,
    "domain": str,
}
_NAMES = ", ".join(_COLUMNS)
_ARRAYS = {"pages": "<i4", "generations": "<u8"}
# ids count up from 1: a larger one is damage, and SQLite could not even store all of them
HIGHEST_ID = 2**48
LATEST = 1e11  # unix seconds; a later time is no time


class _Damaged(Exception):
    """The file is a database, but not all of it can be right."""


class SpoolIndex:
    """Samples and counters of one spool folder. malformed: ids of the rows that `samples` left out because they make
    no sense."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder
        self.malformed: list[Any] = []

    @classmethod
    def create(cls, folder: Path, *, anew: bool = False) -> SpoolIndex:
        """The writer's view; the file is made, or made anew where it is damaged. sqlite3.Error when it cannot.

        anew: what is there is damaged, though it does not look so.
        """
        path = folder / INDEX_FILE
        if not anew:
            try:
                return cls._create(path)
            except _Damaged:
                pass
            except sqlite3.Error as error:
                if not is_damage(error, folder):
                    raise
        for name in INDEX_FILES:
            path.with_name(name).unlink(missing_ok=True)
        return cls._create(path)

    @classmethod
    def in_memory(cls, folder: Path) -> SpoolIndex:
        """An empty one beside that of `folder`, which is left as it is, for a writer that finds the disk full."""
        return cls._filled(sqlite3.connect(":memory:"), folder)

    @classmethod
    def _create(cls, path: Path) -> SpoolIndex:
        check_database(path)
        path.touch(mode=0o600)  # before SQLite does with the umask's mode; its side files get the same
        path.chmod(0o600)
        # opened where the engine starts, used on the writer's thread
        return cls._filled(sqlite3.connect(path, check_same_thread=False), path.parent)

    @classmethod
    def _filled(cls, connection: sqlite3.Connection, folder: Path) -> SpoolIndex:
        connection.text_factory = _text
        try:
            db = Database(connection, execute_plugins=False)
            db.enable_wal()
            # a killed process loses nothing; a power cut loses the last moments, which the ring's page table still has
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA user_version = 2")  # a write: damage to the header may have made the file read-only
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise _Damaged
            with db.atomic():
                samples = db.table("samples")
                samples.create(_COLUMNS, pk="id", if_not_exists=True)
                if "domain" not in samples.columns_dict:  # of a version before there were labels
                    samples.add_column("domain", str, not_null_default="")
                samples.create_index(["split", "id"], if_not_exists=True)
                db.table("counters").create({"name": str, "value": int}, pk="name", if_not_exists=True)
            db.execute(f"select {_NAMES} from samples limit 0")  # another version's index has other columns
        except (UnicodeDecodeError, NoTable):  # in the name of a table or column; a view in a table's place
            connection.close()
            raise _Damaged from None
        except BaseException:
            connection.close()
            raise
        return cls(db, folder)

    @classmethod
    def open(cls, folder: Path) -> SpoolIndex:
        """A reader's view. TideError when there is no index, or an unusable one."""
        path = folder / INDEX_FILE
        try:
            path.stat()
        except OSError as error:
            if (folder / RING_FILE).is_file():
                why = f"{INDEX_FILE} is missing" if isinstance(error, FileNotFoundError) else reason(error)
                raise _unusable(folder, why) from None
            raise no_ring(folder, error) from None
        try:
            check_database(path)
        except OSError as error:
            raise _unusable(folder, f"{Path(error.filename).name}: {reason(error)}") from None
        connection = None
        try:
            connection = sqlite3.connect(_address(path), uri=True, check_same_thread=False, timeout=10)
            connection.text_factory = _text
            db = Database(connection, execute_plugins=False)
            db.execute("PRAGMA query_only = ON")
            if not db.table("counters").exists():
                raise sqlite3.DatabaseError("it has no counters")
        except (sqlite3.Error, UnicodeDecodeError, NoTable) as error:
            if connection:
                connection.close()
            raise _unusable(folder, error) from error
        return cls(db, folder)

    def samples(
        self,
        *,
        split: str | None = None,
        newest: int | None = None,
        since_id: int = 0,
        oldest: int | None = None,
        created_since: float | None = None,
        created_until: float | None = None,
        draft_versions: Collection[int] | None = None,
        min_tokens: int | None = None,
        max_tokens: int | None = None,
        domain: str | None = None,
    ) -> list[SampleInfo]:
        """Finished samples with id > since_id that pass every filter given, newest first, at most `newest` of them.

        oldest: instead the oldest first, at most so many. created_since, created_until: unix seconds, the first
        included. domain: "" for the unlabelled ones. TideError where the index cannot be read.
        """
        conditions: list[tuple[str, Any]] = [
            ("id > ?", since_id),
            ("split = ?", split),
            ("created >= ?", created_since),
            ("created < ?", created_until),
            ("tokens >= ?", min_tokens),
            ("tokens <= ?", max_tokens),
            ("domain = ?", domain),
        ]
        chosen = [(text, value) for text, value in conditions if value is not None]
        where, values = " and ".join(text for text, _ in chosen), [value for _, value in chosen]
        if draft_versions is not None:
            where += f" and draft_version in ({', '.join('?' * len(draft_versions))})"
            values += draft_versions
        order, limit = ("id desc", newest) if oldest is None else ("id", oldest)
        try:
            rows = self._db.execute(
                f"select {_NAMES} from samples where {where} order by {order} limit ?",
                [*values, -1 if limit is None else limit],
            ).fetchall()
        except sqlite3.Error as error:
            raise _unusable(self._folder, error) from error
        infos = [_info(row) for row in rows]
        self.malformed += [row[0] for row, info in zip(rows, infos, strict=True) if info is None]
        return [info for info in infos if info is not None]

    def totals(self) -> dict[str, int]:
        """The counters: samples and tokens stored, requests dropped by cause. They only grow. TideError."""
        try:
            rows = self._db.execute("select name, value from counters").fetchall()
        except sqlite3.Error as error:
            raise _unusable(self._folder, error) from error
        return {name: value for name, value in rows if isinstance(name, str) and isinstance(value, int)}

    def commit(self, added: Iterable[SampleInfo], removed: Iterable[int], totals: Mapping[str, int]) -> None:
        """New samples, ids of samples that are gone, and the counters, in one transaction. sqlite3.Error on failure."""
        with self._db.atomic():
            # plain statements: this runs for every finished request, and the helpers look at the schema each time
            self._db.conn.executemany("delete from samples where id = ?", [(sample,) for sample in removed])
            marks = ", ".join("?" * len(_COLUMNS))
            self._db.conn.executemany(
                f"insert or replace into samples ({_NAMES}) values ({marks})", [_row(info) for info in added]
            )
            self._db.conn.executemany(
                "insert or replace into counters (name, value) values (?, ?)", list(totals.items())
            )

    def scrub(self) -> None:
        """Nothing of deleted rows stays in the file (which secure_delete sees to) or in its journal. sqlite3.Error."""
        busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("a reader holds the index's journal")

    def close(self) -> None:
        self._db.close()


def read_totals(folder: Path) -> dict[str, int]:
    """The counters of the spool in `folder`, without opening the ring (and without torch). TideError: no spool."""
    index = SpoolIndex.open(folder)
    try:
        return index.totals()
    finally:
        index.close()


def _row(info: SampleInfo) -> tuple[Any, ...]:
    return tuple(
        np.asarray(getattr(info, name), _ARRAYS[name]).tobytes() if name in _ARRAYS else getattr(info, name)
        for name in _COLUMNS
    )


def _text(stored: bytes) -> str:
    """What stands in a damaged file need not be UTF-8."""
    return stored.decode(errors="replace")


def _info(values: tuple[Any, ...]) -> SampleInfo | None:
    """The row as a sample; None where a damaged index has values that cannot be."""
    row = dict(zip(_COLUMNS, values, strict=True))
    if any(not isinstance(row[name], kind) for name, kind in _COLUMNS.items()) or not 0 < row["id"] <= HIGHEST_ID:
        return None
    if row["split"] not in ("train", "held_out") or not 0 <= row["created"] < LATEST:
        return None
    try:
        arrays = {name: tuple(np.frombuffer(row[name], kind).tolist()) for name, kind in _ARRAYS.items()}
    except ValueError:
        return None
    return SampleInfo(**{**row, **arrays})


def _address(path: Path) -> str:
    """How a reader opens the index: SQLite makes files beside it, but needs none where nobody writes (immutable)."""
    journal = path.with_name(path.name + "-wal")
    still = not is_writable(path.parent) and not journal.exists() and not is_written(path.parent)
    return path.absolute().as_uri() + ("?immutable=1" if still else "")


def _unusable(folder: Path, error: Exception | str) -> TideError:
    why = error if isinstance(error, str) else reason(error)
    remedy = "`tide spool repair` rebuilds it from the ring"
    if isinstance(error, sqlite3.Error) and not is_damage(error, folder):
        remedy = "mend that; its contents are not to blame"
        if not is_writable(folder):
            remedy = "copy the state folder to where it can be written; SQLite makes files beside the index"
        elif is_full(error):
            remedy = "free some space there, or mend the disk"
    return TideError(f"the index of the spool in {folder} cannot be read", why=why, remedy=remedy)
