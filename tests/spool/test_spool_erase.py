"""Erased samples leave nothing behind: not in the ring, not in the index, not in the reservoir."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from spool_traffic import LAYOUT, is_of, leavings, prefix_rows

from tide_cli.errors import TideError
from tide_cli.spool.erase import Erased, Which, answer, ask, erase_offline, read_request, wait_for_answer
from tide_cli.spool.recovery import scan
from tide_cli.spool.reservoir import Reservoir, damaged_files, erase_kept
from tide_cli.spool.ring import Ring
from tide_cli.spool.writer import SpoolWriter

SECRET = [*b"the secret prompt of a user"]


def talk(writer: SpoolWriter, text: list[int], cached: int = 0) -> int | None:
    aux, final = prefix_rows(text)
    writer.put_rows("r", cached, aux[cached:], final[cached:], text)
    return writer.finish("r", [*text, 1], len(text) - 2, draft_version=0, verify_steps=1, accepted_tokens=0)


def traces(folder: Path, text: list[int]) -> int:
    """Places in the spool's files with a row of the text."""
    aux, _ = prefix_rows(text)
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return sum(content.count(row.tobytes()) for content in contents for row in aux)


def test_nothing_of_an_erased_sample_is_left(open_writer, open_reader, folder):
    writer = open_writer(pages=40, max_sample_tokens=64)
    ids = [talk(writer, [*SECRET, number]) for number in range(3)]
    other = [1, 2, 3, 4, 5, 6, 7]
    kept = talk(writer, other)
    assert traces(folder, SECRET) > 0
    erased = writer.erase(Which(ids=tuple(ids)))
    assert (erased.samples, erased.kept_shared) == (3, 0)
    assert erased.pages >= 6 + 3  # those of the samples, and what requests that shared later had written first
    assert erased.bytes == erased.pages * LAYOUT.bytes_per_page
    assert traces(folder, SECRET) == 0
    assert not (folder / "index.db-wal").stat().st_size
    reader = open_reader()
    (info,) = reader.samples()
    assert info.id == kept
    assert is_of(reader.read(info), other)


def test_pages_that_a_survivor_shares_stay_and_are_counted(open_writer, open_reader, folder):
    writer = open_writer(pages=40, max_sample_tokens=64)
    first = talk(writer, SECRET)
    longer = [*SECRET, 4, 5, 6]
    talk(writer, longer, len(SECRET))
    erased = writer.erase(Which(ids=(first,)))
    assert (erased.samples, erased.pages, erased.kept_shared) == (1, 1, 6)
    reader = open_reader()
    (info,) = reader.samples()
    assert is_of(reader.read(info), longer)
    assert writer.erase(Which(everything=True)).kept_shared == 0
    assert traces(folder, SECRET) == 0


def test_what_aborted_requests_have_left_goes_too(open_writer, folder):
    writer = open_writer(pages=40, max_sample_tokens=64)
    aux, final = prefix_rows(SECRET)
    writer.put_rows("gone", 0, aux, final, SECRET)
    writer.abort("gone")
    writer.put_rows("runs", 0, aux[:9], final[:9])
    assert writer.erase(Which(before=0.0)).samples == 0
    assert traces(folder, SECRET) == 9


def test_erasing_in_slices(open_writer, open_reader, folder):
    writer = open_writer(pages=40, max_sample_tokens=64)
    talk(writer, SECRET)
    reader = open_reader()
    erased = writer.begin_erase(Which(everything=True))
    assert reader.samples() == []
    rounds = 0
    while writer.wipe(1):
        rounds += 1
    assert rounds == erased.pages == 7
    assert traces(folder, SECRET) == 0
    assert writer._pages.free == 40


def test_pages_that_wait_to_be_wiped_are_used_when_needed(open_writer, open_reader):
    writer = open_writer(pages=12)
    for number in range(2):
        talk(writer, [number] * 20)
    writer.begin_erase(Which(everything=True))
    assert talk(writer, [7] * 22) == 3
    reader = open_reader()
    assert is_of(reader.read(reader.samples()[0]), [7] * 22)


def test_by_age_and_offline(open_writer, open_reader, folder):
    writer = open_writer(pages=40, max_sample_tokens=64)
    old = talk(writer, SECRET)
    time.sleep(0.01)  # the clock's resolution
    limit = time.time()
    young = talk(writer, [1, 2, 3, 4])
    with pytest.raises(TideError, match="another process writes"):
        erase_offline(folder, Which(everything=True))
    writer.close()
    assert erase_offline(folder, Which(before=limit)).samples == 1
    reader = open_reader()
    assert old not in [info.id for info in reader.samples()]
    assert [info.id for info in reader.samples()] == [young]
    assert traces(folder, SECRET) == 0
    assert open_writer(pages=40, max_sample_tokens=64).counters()["samples"] == 2  # ids go on


def test_no_spool_to_erase(folder):
    with pytest.raises(TideError, match="no spool"):
        erase_offline(folder, Which(everything=True))


def test_old_samples_expire_and_are_wiped(open_writer, open_reader, folder, monkeypatch: pytest.MonkeyPatch):
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    writer = open_writer(pages=40, retention_seconds=100.0)
    talk(writer, SECRET)
    now += 60
    second = talk(writer, [1, 2, 3, 4])
    now += 60
    third = talk(writer, [5, 6, 7, 8])
    reader = open_reader()
    assert [info.id for info in reader.samples()] == [third, second]
    while writer.wipe(2**20):
        pass
    assert traces(folder, SECRET) == 0
    now += 200
    writer.expire()
    assert reader.samples() == []


def test_the_reservoirs_copies_expire_without_a_trainer(
    open_writer, open_reader, folder, monkeypatch: pytest.MonkeyPatch
):
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    writer, reservoir = open_writer(pages=40, retention_seconds=100.0), Reservoir(folder / "reservoir", 2**20, seed=0)
    for text in (SECRET, [1, 2, 3, 4]):
        talk(writer, text)
        now += 60
    reader = open_reader()
    for info in reader.samples():
        reservoir.offer(reader.read(info))
    writer.expire()
    writer.close()
    assert [entry.info.id for entry in reservoir.samples()] == [2]
    assert not traces(folder / "reservoir", SECRET)


def test_request_and_answer(tmp_path: Path):
    for which in (Which(everything=True), Which(ids=(3, 5)), Which(before=12.5)):
        number = ask(tmp_path, which)
        assert float(number) == number
        assert read_request(tmp_path, number) == which
        assert (tmp_path / f"erase-{number}.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(TideError, match="no request to erase"):
        read_request(tmp_path, 1)
    (tmp_path / "ring.bin").write_bytes(b"")
    done = Erased(1, 2, 3, 4)
    threading.Timer(0.05, answer, (tmp_path, number, done)).start()
    assert wait_for_answer(tmp_path, number, timeout=30) == done
    with pytest.raises(TideError, match="has not said"):
        wait_for_answer(tmp_path, ask(tmp_path, which), timeout=0)


def test_the_reservoir_is_erased_under_the_trainers_hands(open_writer, open_reader, tmp_path: Path):
    writer = open_writer(pages=40, max_sample_tokens=64)
    texts = {talk(writer, text): text for text in (SECRET, [1, 2, 3, 4], [5, 6, 7, 8])}
    reader, reservoir = open_reader(), Reservoir(tmp_path / "r", 2**20, seed=0)
    for info in reader.samples():
        reservoir.offer(reader.read(info))
    kept = {entry.info.id: entry for entry in reservoir.samples()}
    assert traces(tmp_path / "r", SECRET)
    assert erase_kept(tmp_path / "r", Which(ids=(1,))) == 1
    assert not traces(tmp_path / "r", SECRET)
    assert kept[1].read() is None
    assert sorted(entry.info.id for entry in reservoir.samples()) == [2, 3]
    assert all(is_of(entry.read(), texts[entry.info.id]) for entry in reservoir.samples())
    assert reservoir.size_bytes == sum(path.stat().st_size for path in (tmp_path / "r").iterdir())


@pytest.mark.parametrize("region", ["aux", "final"])
def test_what_a_kill_leaves_of_an_erasing_is_erased_by_the_next(open_writer, folder, region):
    writer = open_writer(pages=40, max_sample_tokens=64)
    talk(writer, SECRET)
    killed_at(writer, region)
    with pytest.raises(Killed):
        writer.erase(Which(everything=True))
    writer.close()
    assert traces(folder, SECRET)
    erase_offline(folder, Which(everything=True))
    assert everything_zero(folder)


@pytest.mark.parametrize("region", ["aux", "final", "checks"])
@pytest.mark.parametrize("rows", [1, 27])
def test_what_a_kill_leaves_of_a_running_request_is_erased(open_writer, folder, region, rows):
    writer = open_writer(pages=40, max_sample_tokens=64)
    aux, final = prefix_rows(SECRET)
    killed_at(writer, region)
    with pytest.raises(Killed):
        writer.put_rows("r", 0, aux[:rows], final[:rows])
    writer.close()
    erase_offline(folder, Which(everything=True))
    assert everything_zero(folder)


def test_the_age_decides_what_expires_whatever_the_order(open_writer, folder, monkeypatch: pytest.MonkeyPatch):
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    writer = open_writer(pages=40, max_sample_tokens=64, retention_seconds=100.0)
    ahead = talk(writer, [1, 2, 3, 4])
    now -= 1000  # the clock is set right
    talk(writer, SECRET)
    now += 200
    last = talk(writer, [5, 6, 7, 8])
    while writer.wipe(2**20):
        pass
    assert traces(folder, SECRET) == 0
    monkeypatch.undo()
    writer.close()
    assert sorted(info.id for info in scan(Ring.open(folder))) == [ahead, last]


def test_many_samples_come_and_go_before_one_expires(open_writer, monkeypatch: pytest.MonkeyPatch):
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    writer = open_writer(pages=12, retention_seconds=1e6)
    for number in range(300):
        talk(writer, [number, 2, 3, 4])
        now += 1
    assert len(writer._finished._by_age) < 100
    now += 1e6
    writer.expire()
    assert writer.fill == 0


def test_what_aborted_requests_have_left_expires_too(open_writer, folder):
    writer = open_writer(pages=40, max_sample_tokens=64, retention_seconds=100.0)
    aux, final = prefix_rows(SECRET)
    writer.put_rows("gone", 0, aux, final, SECRET)
    writer.abort("gone")
    writer.expire()
    while writer.wipe(2**20):
        pass
    assert everything_zero(folder)


def test_half_a_file_of_the_reservoir_is_erased_too(open_writer, open_reader, tmp_path: Path):
    writer = open_writer(pages=40, max_sample_tokens=64)
    talk(writer, SECRET)
    reader, reservoir = open_reader(), Reservoir(tmp_path / "r", 2**20, seed=0)
    reservoir.offer(reader.read(reader.samples()[0]))
    (entry,) = reservoir.samples()
    half = entry.path.with_suffix(".new")
    half.write_bytes(entry.path.read_bytes()[:-1])
    entry.path.rename(entry.path.with_name("whole.new"))
    assert traces(tmp_path / "r", SECRET)
    assert erase_kept(tmp_path / "r", Which(ids=(1,))) == 2
    assert not list((tmp_path / "r").iterdir())


def test_what_is_no_file_of_the_reservoir_is_left_alone(tmp_path: Path):
    folder, mine = tmp_path / "r", tmp_path / "mine"
    folder.mkdir()
    mine.write_bytes(b"mine")
    os.mkfifo(folder / "pipe.safetensors")
    (folder / "folder.safetensors").mkdir()
    (folder / "link.safetensors").symlink_to(mine)
    assert erase_kept(folder, Which(everything=True)) == 0
    assert damaged_files(folder, lambda: None) == (0, [])
    assert Reservoir(folder, 2**20, seed=0).samples() == []
    assert mine.read_bytes() == b"mine"


class Killed(Exception):
    pass


class _Deadly:
    """An array that nobody lives to write to."""

    def __setitem__(self, where: object, what: object) -> None:
        raise Killed


def killed_at(writer: SpoolWriter, region: str) -> None:
    """From now on writing to a region of the ring is what a kill at this moment is: nothing more happens."""
    setattr(writer._ring, region, _Deadly())


def everything_zero(folder: Path) -> bool:
    """Whether no row, no token and no check is left in a ring that holds nothing."""
    ring = Ring.open(folder)
    regions = [getattr(ring, name).any() for name in ("tokens", "checks", "aux", "final")]
    ring.close()
    return not any(regions)


def test_a_file_that_is_just_being_written_is_erased_when_it_is_whole(
    open_writer, open_reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    writer = open_writer(pages=40, max_sample_tokens=64)
    talk(writer, SECRET)
    reader, reservoir = open_reader(), Reservoir(tmp_path / "r", 2**20, seed=0)
    erased, at_the_lock, write_file = [], threading.Event(), safetensors.torch.save_file
    file = None

    def erase() -> None:
        erased.append(erase_kept(tmp_path / "r", Which(ids=(1,))))
        at_the_lock.set()

    def flock(fd: int, how: int) -> None:
        if threading.current_thread() is eraser:
            at_the_lock.set()
        take(fd, how)

    def write(tensors: dict, path: Path, metadata: dict) -> None:
        nonlocal file
        write_file(tensors, tmp_path / "whole", metadata=metadata)
        content = (tmp_path / "whole").read_bytes()
        file = path.open("r+b", buffering=0)
        file.write(content[: len(content) // 2])
        eraser.start()
        at_the_lock.wait()  # it waits there, or has done it all
        file.write(content[len(content) // 2 :])

    take, eraser = fcntl.flock, threading.Thread(target=erase)
    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(safetensors.torch, "save_file", write)
    reservoir.offer(reader.read(reader.samples()[0]))
    eraser.join()
    file.seek(0)
    assert not any(file.read())
    file.close()
    assert (erased, reservoir.samples(), list((tmp_path / "r").iterdir())) == ([1], [], [])


def refuse(name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: SpoolWriter) -> None:
        raise error

    monkeypatch.setattr(SpoolWriter, name, refused)


def test_a_disk_that_fills_up_meanwhile_keeps_the_figures(open_writer, folder, monkeypatch: pytest.MonkeyPatch):
    writer = open_writer(pages=40, max_sample_tokens=64)
    talk(writer, SECRET)
    writer.close()
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    refuse("scrub", full, monkeypatch)
    said = []
    erased = erase_offline(folder, Which(everything=True), said.append)
    assert (erased.samples, erased.pages, len(said)) == (1, 7, 1)
    assert everything_zero(folder)


@pytest.mark.parametrize(
    ("name", "error"), [("sync", OSError(errno.ENOSPC, "no room")), ("scrub", sqlite3.OperationalError("held"))]
)
def test_an_erasing_that_fails_says_how_far_it_came(
    open_writer, folder, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
):
    writer = open_writer(pages=40, max_sample_tokens=64)
    talk(writer, SECRET)
    writer.close()
    refuse(name, error, monkeypatch)
    with pytest.raises(TideError, match="is not erased") as caught:
        erase_offline(folder, Which(everything=True))
    assert caught.value.why.endswith("so far 1 sample given up, at most 7 pages overwritten")


def test_short_samples_leave_nothing_of_older_ones_in_their_pages(open_writer, open_reader, folder):
    writer = open_writer(pages=6)
    talk(writer, SECRET[:22])
    assert traces(folder, SECRET) == 22
    texts = [[number, 2, 3, 4, 5] for number in range(3)]
    for text in texts:
        talk(writer, text)
    assert leavings(folder) == 0
    reader = open_reader()
    assert all(is_of(reader.read(info), text) for info, text in zip(reader.samples()[::-1], texts, strict=True))


def test_a_sample_without_its_beginning_leaves_nothing_before_it(open_writer, folder):
    writer = open_writer(pages=6)
    talk(writer, SECRET[:22])
    for number in range(3):
        talk(writer, [number, 2, 3, 4, 5, 6, 7, 8], cached=3)
    assert leavings(folder) == 0


def test_what_a_request_took_back_is_erased_with_it(open_writer, folder):
    writer = open_writer(pages=6)
    aux, final = prefix_rows(SECRET)
    writer.put_rows("r", 0, aux[:22], final[:22])
    writer.put_rows("r", 5, aux[5:6], final[5:6])
    writer.finish("r", SECRET[:6], 1, draft_version=0, verify_steps=1, accepted_tokens=0)
    for number in range(2):
        talk(writer, [number, 2, 3, 4, 5])
    assert writer.erase(Which(ids=(1,))).samples == 1
    assert (traces(folder, SECRET), leavings(folder)) == (0, 0)


@pytest.mark.parametrize("region", ["aux", "final"])
def test_what_a_kill_leaves_of_older_samples_is_erased(open_writer, folder, region):
    writer = open_writer(pages=6)
    talk(writer, SECRET[:22])
    aux, final = prefix_rows([1, 2, 3, 4, 5])
    writer.put_rows("r", 0, aux, final)
    killed_at(writer, region)
    with pytest.raises(Killed):
        writer.finish("r", [1, 2, 3, 4, 5], 1, draft_version=0, verify_steps=1, accepted_tokens=0)
    writer.close()
    assert traces(folder, SECRET)
    erase_offline(folder, Which(before=1.0))
    assert everything_zero(folder)


def test_an_opening_clears_what_stands_beside_the_samples(open_writer, open_reader, folder):
    writer = open_writer()
    text = [1, 2, 3, 4, 5]
    talk(writer, text)
    writer.close()
    ring = Ring.open(folder, writable=True)
    (info,) = scan(ring)
    row = info.pages[-1] * 4 + 3
    ring.aux[row] = ring.final[row] = ring.tokens[row] = ring.checks[row] = 7
    ring.close()
    open_writer()
    assert leavings(folder) == 0
    reader = open_reader()
    assert is_of(reader.read(*reader.samples()), text)


@pytest.mark.parametrize("way", ["erase", "expire"])
@pytest.mark.parametrize("start", [0, 2])
def test_running_requests_keep_nothing_of_older_samples(open_writer, open_reader, folder, way, start):
    writer = open_writer(pages=7, max_sample_tokens=28, retention_seconds=1e6)
    talk(writer, SECRET[:22])
    text = [1, 2, 3, 4, 5, 6, 7]
    aux, final = prefix_rows(text)
    for rid in ("a", "b"):  # their tokens are known up to the sixth, and b's for the most part
        writer.put_rows(rid, start, aux[start:6], final[start:6], text[:6])
    writer.put_rows("b", 6, aux[6:], final[6:])
    if way == "erase":
        writer.erase(Which(before=1.0))
    else:
        writer.expire()
        while writer.wipe(2**20):
            pass
    assert traces(folder, SECRET) == 0
    assert not set(np.fromfile(folder / "ring.bin", "<i4")) & set(SECRET)
    for rid, end in (("a", 6), ("b", 7)):
        writer.finish(rid, text[:end], 3, draft_version=0, verify_steps=1, accepted_tokens=0)
    assert leavings(folder) == 0
    reader = open_reader()
    assert all(is_of(reader.read(info), text[: info.prefix_missing + info.tokens]) for info in reader.samples())


def test_no_figure_of_a_sample_that_has_gone_is_left(open_writer, folder):
    writer = open_writer(pages=40, max_sample_tokens=64)
    aux, final = prefix_rows(SECRET)
    writer.put_rows("r", 0, aux[:8], final[:8], SECRET[:8])
    figures = {"draft_version": 0, "verify_steps": 1, "accepted_tokens": 0}
    writer.finish("r", [*SECRET[:8], 1], 4, domain="hush", **figures)
    talk(writer, SECRET, cached=8)  # holds its last page
    writer.erase(Which(ids=(1,)))
    assert b"hush" not in (folder / "ring.bin").read_bytes()
