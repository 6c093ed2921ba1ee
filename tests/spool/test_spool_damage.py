"""Damage of any kind: an error in words, or samples dropped and counted, but never a crash and never wrong rows."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spool_traffic import LAYOUT, LONGEST, Conversations, is_of, prefix_rows

import tide_cli
from tide_cli.errors import TideError
from tide_cli.spool.folder import check_ring
from tide_cli.spool.layout import OPENINGS_OFFSET, RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import SampleInfo
from tide_cli.spool.writer import SpoolWriter

PAGES = 48
REGIONS = ("header", "openings", "table", "tokens", "checks", "aux", "final", "index")


def open_writer(folder: Path) -> SpoolWriter:
    return SpoolWriter.open(
        folder, LAYOUT, LAYOUT.size_for(PAGES), run="run", max_sample_tokens=LONGEST, held_out_share=0.3
    )


def store_some(writer: SpoolWriter, seed: int, count: int) -> dict[int, list[int]]:
    """Conversations that share pages; id -> tokens with a row."""
    talk, texts = Conversations(random.Random(seed)), {}
    for _ in range(count):
        prompt, cached = talk.prompt()
        text = prompt + talk.output() + [1]
        aux, final = prefix_rows(text[:-1])
        writer.put_rows("r", cached, aux[cached : len(prompt)], final[cached : len(prompt)], prompt)
        writer.put_rows("r", len(prompt), aux[len(prompt) :], final[len(prompt) :])
        sample = writer.finish("r", text, len(prompt), draft_version=0, verify_steps=1, accepted_tokens=0)
        talk.computed(text[:-1])
        if sample is not None:
            texts[sample] = text[:-1]
    return texts


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, list[int]], list[SampleInfo]]:
    folder = tmp_path_factory.mktemp("pristine") / "spool"
    writer = open_writer(folder)
    texts = store_some(writer, 1, 30)
    writer.close()
    reader = SpoolReader.open(folder)
    infos = reader.samples()
    reader.close()
    assert len({page for info in infos for page in info.pages}) < sum(len(info.pages) for info in infos)
    return folder, texts, infos


def damage(folder: Path, region: str, data: st.DataObject) -> None:
    regions = LAYOUT.regions(PAGES)
    starts = {
        "header": (0, 600),
        "openings": (OPENINGS_OFFSET, 4096),
        "table": (regions.table, regions.table + PAGES * 128),
        "tokens": (regions.tokens, regions.checks),
        "checks": (regions.checks, regions.aux),
        "aux": (regions.aux, regions.final),
        "final": (regions.final, regions.size),
    }
    path = folder / ("index.db" if region == "index" else "ring.bin")
    first, stop = starts.get(region, (0, path.stat().st_size))
    with path.open("r+b") as file:
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(first, stop - 1))
            file.seek(at)
            file.write(data.draw(st.binary(min_size=1, max_size=min(64, stop - at))))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(REGIONS), st.booleans(), st.data())
def test_random_damage(pristine, region: str, reopened: bool, data: st.DataObject):
    folder, texts, infos = pristine
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "spool"
        shutil.copytree(folder, copy)
        damage(copy, region, data)
        try:
            if reopened:
                open_writer(copy).close()
            reader = SpoolReader.open(copy)
            listed = reader.samples()
            reader.totals()
        except TideError:
            assert region in ("header", "index")
            return
        read = {info.id: sample for info in listed if (sample := reader.read(info)) is not None}
        assert all(is_of(sample, texts[number]) for number, sample in read.items())
        lost = len(infos) - len(read)
        if not reopened:  # whoever was there when the damage came has it counted
            counted = reader.damaged + reader.overwritten + len(reader._index.malformed)
            assert lost <= counted + (len(infos) - len(listed))
        reader.close()
        if region == "header":
            return
        # and the ring goes on being usable, whatever is left in it
        writer = open_writer(copy)
        more = store_some(writer, 2, 12)
        reader = SpoolReader.open(copy)
        after = {info.id: reader.read(info) for info in reader.samples()}
        newest = max(more)
        assert after[newest] is not None
        assert all(is_of(after[number], text) for number, text in more.items() if after.get(number))
        reader.close()
        writer.close()


@pytest.mark.parametrize("cut", [0, 3000, 20_000])
def test_a_ring_cut_short_under_its_writer_is_an_error_and_no_signal(tmp_path: Path, cut: int):
    """In a process of its own: without the check it would die of SIGBUS."""
    code = f"""
import os, sys
from pathlib import Path
from spool_traffic import prefix_rows
from test_spool_damage import open_writer, store_some
from tide_cli.spool.reader import SpoolReader
folder = Path({str(tmp_path / "spool")!r})
writer = open_writer(folder)
store_some(writer, 1, 12)
reader = SpoolReader.open(folder)
infos = reader.samples()
os.truncate(folder / "ring.bin", {cut})
aux, final = prefix_rows([1, 2, 3])
for call in (lambda: writer.put_rows("r", 0, aux, final, [1, 2, 3]), lambda: writer.finish("r", [1, 2], 1,
             draft_version=0, verify_steps=1, accepted_tokens=0), lambda: reader.read(infos[0])):
    try:
        call()
    except OSError as error:
        print("refused:", error)
writer.close()
"""
    paths = [str(Path(tide_cli.__file__).parents[1]), str(Path(__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused: the ring's file was cut") == 3


def test_a_pipe_in_the_place_of_the_ring_is_not_waited_for(tmp_path: Path):
    open_writer(tmp_path / "spool").close()
    (tmp_path / "spool" / "ring.bin").unlink()
    os.mkfifo(tmp_path / "spool" / "ring.bin")
    for opening in (open_writer, SpoolReader.open):
        with pytest.raises(TideError, match="not a usable spool") as caught:
            opening(tmp_path / "spool")
        assert caught.value.why == "it is no file"


def test_a_deleted_ring_is_noticed(tmp_path: Path):
    writer = open_writer(tmp_path / "spool")
    (tmp_path / "spool" / "ring.bin").unlink()
    with pytest.raises(OSError, match="deleted"):
        store_some(writer, 1, 1)
    writer.close()


def test_another_format_is_refused_with_the_way_out(tmp_path: Path):
    open_writer(tmp_path / "spool").close()
    old = RowLayout(hidden_size=LAYOUT.hidden_size, page_tokens=4, version=1, target=LAYOUT.target)
    with (tmp_path / "spool" / "ring.bin").open("r+b") as file:
        file.write(old.header(PAGES))
    for opening in (open_writer, SpoolReader.open):
        with pytest.raises(TideError, match="not a usable spool") as caught:
            opening(tmp_path / "spool")
        assert "format 1" in caught.value.why
        assert "delete" in caught.value.remedy


def test_a_header_without_pages(tmp_path: Path):
    open_writer(tmp_path).close()
    with (tmp_path / "ring.bin").open("r+b") as ring:
        ring.write(LAYOUT.header(0))
        ring.truncate(LAYOUT.regions(0).size)
    with pytest.raises(TideError, match="is not a usable spool") as caught:
        SpoolReader.open(tmp_path)
    assert caught.value.why == "it has no pages"


def test_holes_of_a_copied_ring_are_filled_when_it_is_opened_for_writing(tmp_path: Path, monkeypatch):
    folder = tmp_path / "spool"
    open_writer(folder).close()
    ring = folder / "ring.bin"
    content, size = ring.read_bytes(), ring.stat().st_size
    ring.unlink()
    with ring.open("wb") as file:
        file.write(content[:4096])
        file.truncate(size)
    assert ring.stat().st_blocks * 512 < size
    check_ring(folder, LAYOUT, size, 4)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=512))
        with pytest.raises(TideError, match="cannot be used"):
            check_ring(folder, LAYOUT, size, 4)

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(TideError) as caught:
            open_writer(folder)
    assert caught.value.remedy == "free some space there, or mend the disk"
    open_writer(folder).close()
    assert ring.stat().st_blocks * 512 >= size
