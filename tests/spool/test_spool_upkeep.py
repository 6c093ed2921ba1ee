"""Verify and repair: every sample against its checksum, the index from the page table alone."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import asdict

import pytest
from spool_traffic import is_exact

from tide_cli.errors import TideError
from tide_cli.spool.export import export
from tide_cli.spool.figures import take_figures
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.ring import Ring
from tide_cli.spool.trained import count_trained, times_trained
from tide_cli.spool.upkeep import repair, verify
from tide_cli.spool.writer import SpoolWriter


def ignore(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture
def filled(open_writer, store, folder):
    """Four samples of a closed spool; returns the ids."""
    writer = open_writer()
    ids = [store(writer, seed=seed, length=8 + seed % 2) for seed in (1, 2, 3, 4)]
    writer.refuse("x", "queue_full")
    writer.close()
    return ids


def spoil(folder, open_reader, sample_id: int) -> None:
    """Flips one bit of one row of the sample."""
    (info,) = [info for info in open_reader().samples() if info.id == sample_id]
    ring = Ring.open(folder, writable=True)
    ring.aux[info.pages[-1] * ring.layout.page_tokens, 3] ^= 1
    ring.close()


def test_verify_counts(filled, folder, open_reader):
    steps = []
    found = verify(folder, lambda done, total: steps.append((done, total)))
    assert (found.good, found.damaged, found.overwritten) == (4, (), 0)
    assert steps == [(done, 4) for done in (1, 2, 3, 4)]
    spoil(folder, open_reader, filled[2])
    found = verify(folder, ignore)
    assert (found.good, found.damaged, found.overwritten) == (3, (filled[2],), 0)


def test_verify_beside_a_writer(filled, open_writer, store, folder):
    writer = open_writer()

    def overwrite(done: int, total: int) -> None:
        if done == 1:
            store(writer, seed=9, length=24)

    found = verify(folder, overwrite)
    assert found.overwritten > 0
    assert found.damaged == ()
    assert found.good + found.overwritten == 4


@pytest.mark.parametrize(
    ("how", "state"), [("nothing", "intact"), ("missing", "missing"), ("garbage", "unreadable"), ("half", "unreadable"),
                       ("rows", "out of step")]
)  # fmt: skip
def test_the_index_comes_back_from_the_page_table(filled, folder, open_reader, how: str, state: str):
    with closing(SpoolReader.open(folder)) as reader:
        before, totals = reader.samples(), reader.totals()
    path = folder / "index.db"
    if how == "missing":
        path.unlink()
    elif how == "garbage":
        path.write_bytes(b"garbage" * 1000)
    elif how == "half":
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xff" * (len(content) - 4096)
        path.write_bytes(content)
    elif how == "rows":
        with sqlite3.connect(path) as db:
            db.execute("delete from samples where id = 2")
        db.close()
    found = repair(folder, ignore)
    assert (found.index, found.samples, found.damaged) == (state, 4, ())
    assert found.added == {"nothing": 0, "rows": 1}.get(how, 4)
    assert found.removed == 0
    reader = open_reader()
    assert reader.samples() == before
    assert all(is_exact(reader.read(info)) for info in before)
    if how in ("nothing", "rows"):  # what only the index knew is kept where it can be read
        assert reader.totals() == totals
    assert path.stat().st_mode & 0o777 == 0o600
    assert repair(folder, ignore).index == "intact"


def test_damaged_samples_are_dropped_and_their_pages_reused(filled, folder, open_reader, open_writer, store):
    spoil(folder, open_reader, filled[0])
    spoil(folder, open_reader, filled[3])
    found = repair(folder, ignore)
    assert found.damaged == (filled[0], filled[3])
    assert (found.samples, found.tokens) == (2, 17)
    assert verify(folder, ignore).good == 2
    writer, reader = open_writer(), open_reader()
    assert [info.id for info in reader.samples()] == [filled[2], filled[1]]
    new = [store(writer, seed=seed, length=8) for seed in (6, 7, 8)]
    assert min(new) > max(filled)  # ids never come back
    assert all(is_exact(reader.read(info)) for info in reader.samples())


def test_repair_needs_the_spool_for_itself(open_writer, folder):
    with pytest.raises(TideError, match="no spool"):
        repair(folder, ignore)
    open_writer()
    with pytest.raises(TideError, match="another process writes"):
        repair(folder, ignore)


def test_a_damaged_header_is_beyond_repair(filled, folder):
    with (folder / "ring.bin").open("r+b") as file:
        file.seek(10)
        file.write(b"\xff")
    with pytest.raises(TideError, match="not a usable spool"):
        repair(folder, ignore)


def test_verify_finds_what_only_the_ring_or_only_the_index_has(filled, folder, open_reader):
    (lost,) = [info for info in open_reader().samples() if info.id == filled[1]]
    ring = Ring.open(folder, writable=True)
    ring.table["generation"][lost.pages[0]] ^= 1
    ring.close()
    with closing(sqlite3.connect(folder / "index.db")) as index, index:
        index.execute("delete from samples where id = ?", (filled[2],))
    found = verify(folder, ignore)
    assert (found.good, found.damaged, found.overwritten, found.astray) == (2, (), 0, 2)
    repaired = repair(folder, ignore)
    assert (repaired.index, repaired.samples) == ("out of step", 3)
    assert verify(folder, ignore).astray == 0


def test_a_ring_cut_short_while_it_is_read(filled, folder):
    def cut(done: int, total: int) -> None:
        os.truncate(folder / "ring.bin", 4096)

    with pytest.raises(TideError, match="cannot be used") as caught:
        verify(folder, cut)
    assert "was cut to 4096" in caught.value.why


@pytest.mark.parametrize("table", ["samples", "counters"])
def test_a_view_in_the_place_of_a_table_is_damage(filled, folder, table):
    with closing(sqlite3.connect(folder / "index.db")) as index, index:
        index.execute(f"alter table {table} rename to old")
        index.execute(f"create view {table} as select * from old")
    if table == "counters":
        with pytest.raises(TideError, match=r"the index of the spool in .* cannot be read"):
            verify(folder, ignore)
    assert repair(folder, ignore).samples == 4
    assert verify(folder, ignore).good == 4


@pytest.mark.parametrize("created", [float("inf"), 1e300, -1.0])
def test_a_time_that_is_none_is_damage(filled, folder, created):
    with closing(sqlite3.connect(folder / "index.db")) as index, index:
        index.execute("update samples set created = ? where id = ?", (created, filled[0]))
    found = verify(folder, ignore)
    assert (found.good, found.malformed, found.astray) == (3, 1, 0)
    assert repair(folder, ignore).samples == 4


@pytest.mark.parametrize("created", [float("nan"), 1e300, -1.0])
def test_a_time_in_the_ring_that_is_none_is_damage(filled, folder, open_reader, created):
    (info,) = [info for info in open_reader().samples() if info.id == filled[0]]
    ring = Ring.open(folder, writable=True)
    ring.table["created"][info.pages[-1]] = created
    ring.close()
    assert verify(folder, ignore).astray == 1
    assert repair(folder, ignore).samples == 3
    found = verify(folder, ignore)
    assert (found.good, found.malformed, found.astray) == (3, 0, 0)


def kill(writer: SpoolWriter) -> None:
    """From now on nothing reaches the index, as after a kill between the ring's change and the index's."""
    writer._sealer.commit = lambda added=(): bool(added)


def test_what_a_kill_left_to_the_next_opening_is_no_damage(filled, folder, open_writer, store):
    writer = open_writer()
    kill(writer)
    store(writer, seed=9, length=24)  # in the place of the oldest ones, which are given up
    writer.close()
    found = verify(folder, ignore)
    assert (found.damaged, found.overwritten, found.astray) == ((), 0, 0)
    assert found.unsettled == 4 - found.good + 1 > 1
    open_writer().close()
    settled = verify(folder, ignore)
    assert (settled.good, settled.unsettled, settled.astray) == (found.good + 1, 0, 0)


def test_what_a_kill_left_is_counted_alike_by_all(filled, folder, open_reader, open_writer, store, tmp_path):
    writer = open_writer()
    kill(writer)
    store(writer, seed=9, length=24)
    reader = open_reader()
    assert len(reader.samples()) > len(reader.held(reader.samples()))  # for a moment that is so beside any writer
    assert take_figures(folder, 0.0).index_only == 0
    writer.close()
    found, figures = verify(folder, ignore), take_figures(folder, 0.0)
    assert (figures.samples, figures.index_only) == (found.good, 4 - found.good)
    assert sum(part["samples"] for part in figures.by_split.values()) == found.good
    done = export(reader, reader.samples(), tmp_path / "out", ignore)
    assert (done.samples, done.index_only, done.overwritten) == (found.good, 4 - found.good, 0)


def test_what_a_kill_left_is_told_as_json_where_later_samples_have_its_pages(filled, folder, open_writer, store):
    writer = open_writer()
    kill(writer)
    for seed in range(20, 32):
        store(writer, seed=seed, length=3)
    writer.close()
    found = verify(folder, ignore)
    assert found.astray == 0
    assert json.loads(json.dumps(asdict(found)))["unsettled"] == found.unsettled > 1


def test_a_page_that_was_lost_is_damage_beside_what_a_kill_left(filled, folder, open_reader, open_writer, store):
    (lost,) = [info for info in open_reader().samples() if info.id == filled[3]]
    writer = open_writer()
    kill(writer)
    store(writer, seed=9, length=12)
    writer._ring.table["generation"][lost.pages[-1]] ^= 1
    writer.close()
    found = verify(folder, ignore)
    assert (found.good, found.unsettled, found.astray) == (2, 2, 1)


def test_a_row_that_makes_no_sense_hides_no_other_difference(filled, folder):
    with closing(sqlite3.connect(folder / "index.db")) as index, index:
        index.execute("delete from samples where id = ?", (filled[1],))
        index.execute("insert into samples (id) values (99)")
    found = verify(folder, ignore)
    assert (found.good, found.malformed, found.astray) == (3, 1, 1)


@pytest.mark.parametrize("name", ["index.db", "index.db-journal", "index.db-wal", "index.db-shm"])
def test_a_pipe_beside_the_index_is_not_waited_for(filled, folder, open_writer, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(TideError, match="cannot be read") as caught:
        verify(folder, ignore)
    assert caught.value.why == f"{name}: something else is in its place"
    with pytest.raises(TideError, match="cannot be used") as caught:
        open_writer()
    assert "tide spool repair" in caught.value.remedy
    assert repair(folder, ignore).samples == 4
    assert verify(folder, ignore).good == 4


def test_a_pipe_beside_the_counts_is_not_waited_for(filled, folder, open_reader):
    reader = open_reader()
    (info, *_) = reader.samples()
    count_trained(folder, [info], 0)
    os.mkfifo(folder / "trained.db-journal")
    with pytest.raises(OSError, match="no file"):
        count_trained(folder, [info], 0)
    assert times_trained(folder) == {}
    assert len(reader.samples()) == 4


def test_a_ring_with_a_damaged_header_is_left_as_its_message_says(filled, folder, open_writer, store, open_reader):
    kept = folder / "reservoir" / "one"
    kept.parent.mkdir()
    kept.touch()
    with (folder / "ring.bin").open("r+b") as file:
        file.seek(10)
        file.write(b"\xff")
    with pytest.raises(TideError, match="not a usable spool") as caught:
        open_writer()
    assert caught.value.remedy.startswith(f"delete {folder / 'ring.bin'} ")
    (folder / "ring.bin").unlink()
    assert store(open_writer(), seed=5, length=8) == 5  # ids never come back
    assert [info.id for info in open_reader().samples()] == [5]
    assert kept.exists()
