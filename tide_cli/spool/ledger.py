"""The writer's books: the index and its counters, kept in step with the ring, and made anew where they are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from tide_cli.errors import TideError
from tide_cli.spool.folder import is_damage
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.recovery import reconcile, scan
from tide_cli.spool.ring import Ring
from tide_cli.spool.samples import SampleInfo


class Ledger:
    """totals: the counters, those included that are not yet on the disk."""

    def __init__(self, folder: Path, ring: Ring, index: SpoolIndex, totals: dict[str, int]) -> None:
        self._folder, self._ring, self._index = folder, ring, index
        self.totals = totals

    @classmethod
    def open(cls, folder: Path, ring: Ring, *, in_memory: bool = False) -> tuple[Ledger, list[SampleInfo]]:
        """The books of a ring, brought in line with it, and its samples, oldest first. sqlite3.Error, OSError.

        in_memory: leave the file as it is; the next one that opens it finds out what has changed.
        """
        index = SpoolIndex.in_memory(folder) if in_memory else SpoolIndex.create(folder)
        try:
            samples, totals = reconcile(ring, index)
        except (sqlite3.Error, TideError) as error:
            index.close()
            if isinstance(error, sqlite3.Error) and not is_damage(error, folder):
                raise
            index = SpoolIndex.create(folder, anew=True)
            samples, totals = reconcile(ring, index)
        return cls(folder, ring, index, totals), samples

    def count(self, name: str) -> None:
        """One more; on the disk with the next commit."""
        self.totals[name] = self.totals.get(name, 0) + 1

    def commit(self, added: Sequence[SampleInfo], removed: Iterable[int]) -> bool:
        """Enters samples that the ring has already and strikes out others. False where the disk does not take it."""
        totals = dict(self.totals)
        totals["samples"] += len(added)
        totals["tokens"] += sum(info.tokens - info.reused for info in added)
        if reused := sum(info.reused for info in added):
            totals["reused_tokens"] = totals.get("reused_tokens", 0) + reused
        try:
            self._index.commit(added, removed, totals)
        except sqlite3.Error as error:
            if not is_damage(error, self._folder) or not self._rebuild(totals):
                return False
        self.totals = totals
        return True

    def scrub(self) -> None:
        """Lets nothing of deleted rows stay in the index's file or its journal. sqlite3.Error."""
        self._index.scrub()

    def close(self) -> None:
        self._index.close()

    def _rebuild(self, totals: dict[str, int]) -> bool:
        """Whether a new index in the place of a damaged one says what the ring holds."""
        try:
            self._index.close()
            self._index = SpoolIndex.create(self._folder, anew=True)
            self._index.commit(scan(self._ring), [], totals)
        except (sqlite3.Error, OSError):
            return False
        return True
