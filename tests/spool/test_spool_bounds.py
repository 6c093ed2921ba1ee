"""The ring never grows, never overwrites a running request, and a reader never gets what was overwritten."""

from __future__ import annotations

import fcntl
import os
import time

import pytest
from spool_traffic import LAYOUT, LONGEST, is_exact, states, token_ids

from tide_cli.errors import TideError, UsageError
from tide_cli.spool.folder import ring_size
from tide_cli.telemetry.totals import served_requests


def test_the_oldest_samples_make_room(open_writer, open_reader, store, folder):
    writer = open_writer(pages=12)
    size = (folder / "ring.bin").stat().st_size
    for seed in range(1, 30):
        store(writer, seed=seed, length=12)  # three pages each
    reader = open_reader()
    assert [info.id for info in reader.samples()] == [29, 28, 27, 26]
    assert all(is_exact(reader.read(info)) for info in reader.samples())
    assert (folder / "ring.bin").stat().st_size == size == ring_size(folder) == writer.size_bytes
    assert size <= LAYOUT.size_for(12)


def test_running_requests_are_not_overwritten(open_writer, open_reader, store):
    writer, (aux, final) = open_writer(pages=12), states(100, 900)
    writer.put_rows("slow", 0, aux[:8], final[:8])
    for seed in range(1, 20):
        store(writer, seed=seed, length=15)
        writer.put_rows("slow", 8, aux[8:9], final[8:9])
    slow = writer.finish("slow", token_ids(100, 10), 2, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    samples = {info.id: reader.read(info) for info in reader.samples()}
    assert slow in samples
    assert all(is_exact(sample) for sample in samples.values())


def test_a_full_ring_drops_the_request_that_wants_more(open_writer, open_reader, store):
    writer, (aux, final) = open_writer(pages=12), states(1, 900)
    for rid in ("a", "b"):
        writer.put_rows(rid, 0, aux[:24], final[:24])
    writer.put_rows("c", 0, aux[:1], final[:1])
    assert writer.counters()["dropped_ring_full"] == 1
    for rid in ("a", "b", "c"):
        writer.finish(rid, token_ids(1, 25), 2, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    assert len(reader.samples()) == 2
    assert all(is_exact(reader.read(info)) for info in reader.samples())


def test_a_request_longer_than_a_sample_counts_with_all_its_tokens(open_writer, open_reader, store, folder):
    store(open_writer(pages=40), seed=1, length=LONGEST + 9)
    (info,) = open_reader().samples()
    assert info.cut > 0
    assert [(one.tokens, one.steps) for one in served_requests(folder, after=0)] == [(5 + 7, 5)]


def test_overwritten_before_the_copy(open_writer, open_reader, store):
    writer = open_writer(pages=12)
    store(writer, seed=1, length=12)
    reader = open_reader()
    (info,) = reader.samples()
    for seed in range(2, 9):
        store(writer, seed=seed, length=12)
    assert reader.read(info) is None
    assert (reader.overwritten, reader.damaged) == (1, 0)


def test_given_to_a_running_request_before_the_copy(open_writer, open_reader, store):
    writer, (aux, final) = open_writer(pages=12), states(100, 900)
    store(writer, seed=1, length=12)
    reader = open_reader()
    (info,) = reader.samples()
    for rid in ("a", "b"):
        writer.put_rows(rid, 0, aux[:24], final[:24])
    assert reader.read(info) is None
    assert (reader.overwritten, reader.damaged) == (1, 0)


def test_overwritten_during_the_copy(open_writer, open_reader, store, monkeypatch):
    writer = open_writer(pages=12)
    store(writer, seed=1, length=12)
    reader = open_reader()
    (info,) = reader.samples()
    looked = reader._ring.holds

    def look_and_then_be_late(*arguments: object) -> bool:
        monkeypatch.undo()
        answer = looked(*arguments)
        for seed in range(2, 9):
            store(writer, seed=seed, length=12)
        return answer

    monkeypatch.setattr(reader._ring, "holds", look_and_then_be_late)
    assert reader.read(info) is None
    assert (reader.overwritten, reader.damaged) == (1, 0)


@pytest.mark.parametrize("region", ["tokens", "aux", "final"])
def test_a_flipped_bit_is_found(open_writer, open_reader, store, region: str):
    writer = open_writer()
    store(writer, seed=1, length=11)
    reader = open_reader()
    (info,) = reader.samples()
    row = info.pages[1] * LAYOUT.page_tokens + 1
    getattr(writer._ring, region).reshape(writer._ring.tokens.size, -1)[row, 0] ^= 64
    assert reader.read(info) is None
    assert (reader.overwritten, reader.damaged) == (0, 1)


def test_more_than_the_disk_holds(open_writer, folder):
    with pytest.raises(TideError, match="cannot hold a spool") as caught:
        open_writer(size_bytes=2**62)
    assert "iB are free" in caught.value.why
    assert not list(folder.glob("ring*"))
    open_writer()


def test_whoever_merely_looks_keeps_no_writer_away(open_writer, folder, monkeypatch: pytest.MonkeyPatch):
    open_writer().close()
    looks = os.open(folder / "writer.lock", os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looks, fcntl.LOCK_UN))  # it has seen enough
    open_writer()
    os.close(looks)


def test_too_small_for_one_sample(open_writer, folder):
    with pytest.raises(UsageError, match="too small") as caught:
        open_writer(pages=5)
    assert caught.value.remedy == "--spool-size 1MiB is the least, or set a smaller max_sample_tokens"
    assert not list(folder.glob("ring*"))
    open_writer(pages=6).close()
    with pytest.raises(UsageError, match=f"in {folder} is too small") as caught:
        open_writer(max_sample_tokens=LONGEST + 1)
    assert caught.value.remedy.startswith("set a smaller max_sample_tokens, or delete ")
