from __future__ import annotations

from pathlib import Path

from tide_cli.spool.index import SpoolIndex
from tide_cli.telemetry.totals import spool_totals


def test_the_counters_of_a_spool_that_is_being_written(tmp_path: Path) -> None:
    assert spool_totals(tmp_path) == {}
    index = SpoolIndex.create(tmp_path)
    index.commit([], [], {"samples": 2, "tokens": 70})
    index.commit([], [], {"samples": 3, "tokens": 90, "dropped_full": 1})
    assert spool_totals(tmp_path) == {"samples": 3, "tokens": 90, "dropped_full": 1} == index.totals()
    index.close()


def test_an_unreadable_index_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "index.db").write_bytes(b"no database" * 100)
    assert spool_totals(tmp_path) == {}
