from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.spool.layout import HEADER, PAGE_ENTRY, RowLayout, parse_header, row_runs
from tide_cli.spool.samples import split_of

layouts = st.builds(
    RowLayout,
    hidden_size=st.integers(1, 2000).map(lambda n: 4 * n),
    page_tokens=st.integers(1, 64),
    target=st.text(min_size=1, max_size=60).filter(lambda t: "\0" not in t),
)


def test_entries_have_the_documented_sizes():
    assert PAGE_ENTRY.itemsize == 128
    assert HEADER.itemsize <= 4096


@given(layouts, st.integers(1, 10_000))
def test_regions_hold_what_they_must_and_fit_the_size(layout: RowLayout, pages: int):
    regions, rows = layout.regions(pages), pages * layout.page_tokens
    assert regions.table >= HEADER.itemsize
    assert regions.tokens - regions.table >= pages * PAGE_ENTRY.itemsize
    assert regions.checks - regions.tokens >= rows * 4
    assert regions.aux - regions.checks >= rows * 8
    assert regions.final - regions.aux >= rows * 6 * layout.hidden_size
    assert regions.size - regions.final >= rows * 2 * layout.hidden_size
    assert regions.size <= layout.size_for(pages)
    assert layout.pages_in(layout.size_for(pages)) == pages


@given(layouts, st.integers(1, 2**40))
def test_header_survives(layout: RowLayout, pages: int):
    assert parse_header(layout.header(pages)) == (layout, pages)


@given(st.integers(0, HEADER.itemsize - 1), st.integers(1, 255))
def test_header_with_a_changed_byte_is_refused(position: int, change: int):
    header = bytearray(RowLayout(hidden_size=64, target="x").header(7))
    header[position] ^= change
    with pytest.raises(ValueError, match=r"ring|checksum"):
        parse_header(bytes(header))


@given(st.data())
def test_runs_visit_every_slot_once_and_are_as_long_as_possible(data: st.DataObject):
    page_tokens = data.draw(st.integers(1, 8))
    pages = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=12, unique=True))
    first = data.draw(st.integers(0, len(pages) * page_tokens - 1))
    count = data.draw(st.integers(1, len(pages) * page_tokens - first))
    runs = list(row_runs(pages, page_tokens, first, count))
    rows = [(row + i, offset + i) for row, offset, length in runs for i in range(length)]
    slots = range(first, first + count)
    assert rows == [(pages[s // page_tokens] * page_tokens + s % page_tokens, s - first) for s in slots]
    assert all(row + length != following[0] for (row, _, length), following in pairwise(runs))


@pytest.mark.parametrize("change", [{"hidden_size": 6}, {"page_tokens": 0}, {"target": ""}, {"target": "x" * 600}])
def test_impossible_layouts_are_refused(change: dict[str, object]):
    with pytest.raises(ValueError, match=r"must"):
        replace(RowLayout(hidden_size=64, target="x"), **change)


def test_split_is_fixed_and_has_about_the_asked_share():
    sides = [split_of(sample, 0.125) for sample in range(1, 4001)]
    assert sides == [split_of(sample, 0.125) for sample in range(1, 4001)]
    assert 400 < sides.count("held_out") < 600
