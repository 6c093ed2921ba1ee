"""What a reader can ask for."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tide_cli.errors import TideError
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.trained import TRAINED_FILE, count_trained, times_trained


@pytest.fixture
def reader(open_writer, open_reader, store, monkeypatch: pytest.MonkeyPatch) -> SpoolReader:
    """Samples 1 … 8, created at seconds 1001 … 1008, of 7 … 14 tokens."""
    writer = open_writer(pages=60)
    for seed in range(1, 9):
        monkeypatch.setattr("time.time", lambda seed=seed: 1000.0 + seed)
        store(writer, seed=seed, length=6 + seed)
    return open_reader()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [8, 7, 6, 5, 4, 3, 2, 1]),
        ({"newest": 2}, [8, 7]),
        ({"oldest": 3}, [1, 2, 3]),
        ({"since_id": 6}, [8, 7]),
        ({"created_since": 1003, "created_until": 1006}, [5, 4, 3]),
        ({"min_tokens": 9, "max_tokens": 11}, [5, 4, 3]),
        ({"min_tokens": 9, "oldest": 2}, [3, 4]),
        ({"draft_versions": [3, 4], "newest": 1}, [8]),
        ({"draft_versions": [4]}, []),
        ({"draft_versions": []}, []),
        ({"times_trained_max": 0}, [8, 7, 5, 3, 1]),
        ({"times_trained_max": 1, "newest": 3}, [8, 7, 6]),
        ({"times_trained_max": 0, "oldest": 2}, [1, 3]),
        ({"times_trained_max": 1, "since_id": 3, "max_tokens": 12}, [6, 5]),
    ],
)
def test_filters(reader: SpoolReader, folder, filters: dict, expected: list[int]):
    by_id = {info.id: info for info in reader.samples()}
    count_trained(folder, [by_id[2], by_id[4], by_id[6], by_id[4]], oldest_id=1)
    assert [info.id for info in reader.samples(**filters)] == expected


def test_times_trained_are_counted_and_forgotten(reader: SpoolReader, folder):
    assert times_trained(folder) == {}
    infos = reader.samples()
    count_trained(folder, infos[:3], oldest_id=1)
    count_trained(folder, infos[2:4], oldest_id=6)
    assert times_trained(folder) == {8: (1008.0, 1), 7: (1007.0, 1), 6: (1006.0, 2)}
    assert [info.times_trained for info in reader.samples(newest=4)] == [1, 1, 2, 0]
    assert (folder / TRAINED_FILE).stat().st_mode & 0o777 == 0o600
    from dataclasses import replace

    count_trained(folder, [replace(infos[0], created=5.0)], oldest_id=1)  # the spool was made anew
    assert [info.times_trained for info in reader.samples(newest=2)] == [0, 1]


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_damaged_file_of_counts_is_made_anew(reader: SpoolReader, folder, content: bytes):
    (folder / TRAINED_FILE).write_bytes(content)
    assert [info.times_trained for info in reader.samples(newest=1)] == [0]
    count_trained(folder, reader.samples(newest=1), oldest_id=1)
    assert [info.times_trained for info in reader.samples(newest=1)] == [1]


def test_counts_of_another_kind_are_made_anew(reader: SpoolReader, folder):
    with closing(sqlite3.connect(folder / TRAINED_FILE)) as other, other:
        other.execute("create table trained (id integer primary key, times integer)")
    for times in (1, 2):
        count_trained(folder, reader.samples(newest=1), oldest_id=1)
        assert [info.times_trained for info in reader.samples(newest=1)] == [times]


def test_writing_listing_and_erasing_need_no_torch():
    code = (
        "import sys, tide_cli.spool.reader, tide_cli.spool.writer, tide_cli.spool.erase, tide_cli.spool.reservoir\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_spool_in_a_folder_that_cannot_be_written(open_writer, open_reader, store, folder, monkeypatch):
    writer = open_writer()
    store(writer, seed=1, length=9)
    writer.close()

    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    reader = open_reader()
    assert [info.id for info in reader.samples()] == [1]
    assert not list(folder.glob("index.db-*"))  # SQLite could not have made them


def test_where_the_journal_of_such_a_spool_is_needed_a_copy_is_named(open_writer, folder, monkeypatch):
    open_writer().close()

    def refused(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    (folder / "index.db-wal").touch()
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    monkeypatch.setattr(sqlite3, "connect", refused)
    with pytest.raises(TideError) as caught:
        SpoolIndex.open(folder)
    assert caught.value.remedy.startswith("copy ")
