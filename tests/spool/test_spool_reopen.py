"""A spool that was closed, killed or damaged, opened again."""

from __future__ import annotations

import os
import sqlite3

import pytest
from spool_traffic import LAYOUT, is_exact, states

from tide_cli.errors import TideError
from tide_cli.spool.folder import check_ring
from tide_cli.spool.index import read_totals
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader


def test_it_goes_on_where_it_stopped(open_writer, open_reader, store):
    writer = open_writer()
    store(writer, seed=1, length=10)
    writer.refuse("x", "queue_full")
    writer.close()
    writer = open_writer(run="run-2", size_bytes=LAYOUT.size_for(400))
    assert store(writer, seed=2, length=7) == 2
    reader = open_reader()
    assert [(info.id, info.run) for info in reader.samples()] == [(2, "run-2"), (1, "run-1")]
    assert all(is_exact(reader.read(info)) for info in reader.samples())
    assert reader.totals() == {"samples": 2, "tokens": 17, "dropped_queue_full": 1}
    assert writer.size_bytes <= LAYOUT.size_for(12)  # the size it was made with


@pytest.mark.parametrize(
    "other",
    [RowLayout(16, 4, target="made-up"), RowLayout(8, 8, target="made-up"), RowLayout(8, 4, target="another")],
)
def test_another_layout_is_refused_and_nothing_is_lost(open_writer, open_reader, store, other: RowLayout):
    writer = open_writer()
    store(writer, seed=1, length=10)
    writer.close()
    with pytest.raises(TideError, match="of another kind") as caught:
        open_writer(layout=other)
    assert "made-up" in caught.value.why
    open_writer()
    reader = open_reader()
    assert is_exact(reader.read(reader.samples()[0]))


def test_two_writers_are_one_too_many(open_writer):
    open_writer()
    with pytest.raises(TideError, match="another process writes"):
        open_writer()


@pytest.mark.parametrize("how", ["deleted", "no database", "rows deleted", "row added"])
def test_the_index_is_rebuilt_from_the_pages(open_writer, open_reader, store, folder, how: str):
    writer = open_writer()
    for seed in (1, 2, 3):
        store(writer, seed=seed, length=6 + seed)
    writer.close()
    reader = open_reader()
    before, totals = reader.samples(), reader.totals()
    reader.close()
    if how == "deleted":
        (folder / "index.db").unlink()
    elif how == "no database":
        (folder / "index.db").write_bytes(b"not a database" * 500)
    else:
        with sqlite3.connect(folder / "index.db") as db:
            if how == "rows deleted":  # as if killed between the pages and the index
                db.execute("delete from samples where id = 3")
                db.execute("update counters set value = value - 1 where name = 'samples'")
                db.execute("update counters set value = value - 9 where name = 'tokens'")
            else:  # as if killed after the pages were given back
                db.execute(
                    "insert into samples select 9, run, draft_version, created, tokens, prompt_tokens, "
                    "prefix_missing, verify_steps, accepted, split, checksum, pages, generations, cut, reused, domain "
                    "from samples where id = 1"
                )
        db.close()
    writer = open_writer()
    reader = open_reader()
    assert reader.samples() == before
    assert all(is_exact(reader.read(info)) for info in before)
    next_id = store(writer, seed=4, length=6)
    assert next_id == (10 if how == "row added" else 4)
    if how != "row added":
        assert reader.totals() == {"samples": 4, "tokens": totals["tokens"] + 6}


def test_a_sample_with_a_lost_page_entry_is_forgotten(open_writer, open_reader, store):
    writer = open_writer()
    for seed in (1, 2):
        store(writer, seed=seed, length=10)
    reader = open_reader()
    writer._ring.table["generation"][reader.samples()[1].pages[1]] = 0
    writer.close()
    writer = open_writer()
    reader = open_reader()
    assert [info.id for info in reader.samples()] == [2]
    assert writer._pages.free == 12 - 3


def test_pages_of_requests_that_ran_are_free_again(open_writer, store):
    writer, (aux, final) = open_writer(), states(1, 900)
    for rid in "ab":
        writer.put_rows(rid, 0, aux[:20], final[:20])
    writer.close()
    writer = open_writer()
    for rid in "ab":
        writer.put_rows(rid, 0, aux[:24], final[:24])
    assert "dropped_ring_full" not in writer.counters()


def test_a_full_index_drops_samples_until_there_is_room(open_writer, open_reader, store):
    writer = open_writer(pages=400)
    database = writer._ledger._index._db
    database.execute("PRAGMA max_page_count = 1")  # not below what is there: the next page is one too many
    stored = [store(writer, seed=seed, length=6) for seed in range(1, 120)]
    dropped = stored.count(None)
    assert 0 < dropped < len(stored)
    assert writer.counters()["dropped_index"] == dropped
    database.execute("PRAGMA max_page_count = 1000000")
    last = store(writer, seed=120, length=6)
    assert last == len(stored) - dropped + 1
    reader = open_reader()
    assert [info.id for info in reader.samples()] == list(range(last, 0, -1))
    assert all(is_exact(reader.read(info)) for info in reader.samples())
    assert reader.totals()["dropped_index"] == dropped


@pytest.mark.parametrize("damage", ["header", "short", "empty"])
def test_a_damaged_ring_is_refused_by_both_ends(open_writer, folder, damage: str):
    open_writer().close()
    path = folder / "ring.bin"
    if damage == "header":
        with path.open("r+b") as file:
            file.seek(10)
            file.write(b"\xff")
    else:
        os.truncate(path, 0 if damage == "empty" else path.stat().st_size - 1)
    with pytest.raises(TideError, match="not a usable spool"):
        open_writer()
    with pytest.raises(TideError, match="not a usable spool"):
        SpoolReader.open(folder)


def test_no_spool(folder):
    with pytest.raises(TideError, match="no spool"):
        SpoolReader.open(folder)
    with pytest.raises(TideError, match="no spool"):
        read_totals(folder)
    assert not folder.exists()


def test_a_folder_that_is_a_file(open_writer, folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("")
    with pytest.raises(TideError, match="cannot be used"):
        open_writer()


def test_reading_goes_on_after_the_writer_left(open_writer, open_reader, store):
    writer = open_writer()
    store(writer, seed=1, length=10)
    early = open_reader()
    writer.close()
    late = open_reader()
    assert is_exact(early.read(early.samples()[0]))
    assert is_exact(late.read(late.samples()[0]))


def test_what_the_engine_would_refuse_is_said_beforehand(folder, open_writer):
    layout = RowLayout(hidden_size=8, target="t")
    with pytest.raises(TideError, match="too small"):
        check_ring(folder, layout, 1024, 64)
    check_ring(folder, layout, 2**20, 64)
    assert not (folder / "ring.bin").exists()
    writer = open_writer()
    found = SpoolReader.open(folder).layout
    writer.close()
    check_ring(folder, found, 0, 16)  # a ring that exists keeps its size
    with pytest.raises(TideError, match="another kind"):
        check_ring(folder, RowLayout(hidden_size=found.hidden_size + 4, target=found.target), 0, 16)
    with (folder / "ring.bin").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(TideError, match="not a usable spool"):
        check_ring(folder, found, 0, 16)
