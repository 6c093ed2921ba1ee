"""Figures, upkeep, export and import of samples that share the pages of a common beginning."""

from __future__ import annotations

from contextlib import closing

import pytest
from spool_traffic import LAYOUT, LONGEST, is_of, prefix_rows

from tide_cli.spool.export import export
from tide_cli.spool.figures import take_figures
from tide_cli.spool.importing import check_export, open_spool, read_export, take_up
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.ring import Ring
from tide_cli.spool.upkeep import repair, verify

SYSTEM = [7, 3, 9, 1, 8, 2, 6, 4]  # two pages
TEXTS = [[*SYSTEM, *range(10 * n, 10 * n + 6)] for n in (2, 3, 4)]


def ignore(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture
def shared(open_writer, folder):
    """Three samples that begin with the same two pages, and have two of their own each."""
    writer = open_writer()
    for number, text in enumerate(TEXTS):
        start = len(SYSTEM) if number else 0  # the engine had the beginning in its prefix cache
        aux, final = prefix_rows(text)
        writer.put_rows("r", start, aux[start:-1], final[start:-1], tokens=text[:10])
        assert writer.finish("r", text, 10, draft_version=0, verify_steps=1, accepted_tokens=0)
    writer.close()
    return folder


def test_shared_pages_count_once(shared):
    figures = take_figures(shared, 0.0)
    assert (figures.samples, figures.tokens) == (3, 39)
    assert figures.pages_used == 2 + 3 * 2
    assert figures.stored["tokens"] == 13 + 2 * 5
    assert figures.stored["reused_tokens"] == 16


def test_damage_to_a_shared_page_is_damage_to_all(shared):
    with closing(SpoolReader.open(shared)) as reader:
        pages = {info.id: info.pages for info in reader.samples()}
    assert pages[1][:2] == pages[2][:2] == pages[3][:2]
    ring = Ring.open(shared, writable=True)
    ring.aux[pages[2][3] * 4, 0] ^= 1  # its own
    ring.close()
    assert repair(shared, ignore).damaged == (2,)
    assert verify(shared, ignore).good == 2  # the beginning stays the others'
    ring = Ring.open(shared, writable=True)
    ring.final[pages[1][1] * 4, 0] ^= 1
    ring.close()
    assert verify(shared, ignore).damaged == (1, 3)
    found = repair(shared, ignore)
    assert (found.damaged, found.samples) == ((1, 3), 0)
    assert take_figures(shared, 0.0).pages_used == 0


def test_an_export_holds_each_sample_whole(shared, tmp_path):
    with closing(SpoolReader.open(shared)) as reader:
        assert export(reader, reader.samples(), tmp_path / "export", ignore).tokens == 39
    found = read_export(tmp_path / "export")
    check_export(found, ignore)
    with closing(open_spool(found, tmp_path / "other", LAYOUT.size_for(40), overwrite=False)[0]) as writer:
        assert take_up(writer, found, found.samples, ignore).samples == 3
    with closing(SpoolReader.open(tmp_path / "other")) as reader:
        for info in reader.samples():
            assert is_of(reader.read(info), TEXTS[info.id - 1])
            assert info.tokens <= LONGEST
    assert take_figures(tmp_path / "other", 0.0).pages_used == 3  # of 16 tokens, nothing shared
