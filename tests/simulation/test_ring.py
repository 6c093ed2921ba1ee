"""The ring's accounting against the ring itself, and what must hold of any."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tide_cli.simulation.ring import Ring, WrittenRing
from tide_cli.spool.layout import RowLayout

LAYOUT = RowLayout(16, target="t")
MOST = 64
requests = st.lists(st.tuples(st.integers(1, 150), st.integers(1, 60)), min_size=1, max_size=40)


def fill(ring: Ring, asked: list[tuple[int, int]]) -> None:
    """Requests two at a time, so that one runs while another ends."""
    for number, (prompt, _) in enumerate(asked):
        ring.begin(number, prompt)
        if number:
            ring.finish(number - 1, *asked[number - 1], at=float(number))
    ring.finish(len(asked) - 1, *asked[-1], at=float(len(asked)))


@settings(max_examples=25, deadline=None)
@given(asked=requests, pages=st.integers(8, 40))
def test_the_real_writer_holds_the_same_samples(asked: list[tuple[int, int]], pages: int) -> None:
    with TemporaryDirectory() as folder:
        ring = WrittenRing(Path(folder) / "spool", LAYOUT, LAYOUT.size_for(pages), MOST, 0.2)
        fill(ring, asked)
        assert ring.agrees()
        ring.close()


@given(asked=requests, pages=st.integers(1, 40))
def test_pages_are_neither_lost_nor_given_twice(asked: list[tuple[int, int]], pages: int) -> None:
    ring = Ring(LAYOUT, LAYOUT.size_for(pages), MOST, 0.2)
    fill(ring, asked)
    assert ring.pages == pages == ring.free + sum(one.pages for one in ring.samples)
    assert ring.stored + ring.dropped == len(asked)
    assert all(one.tokens <= MOST and one.pages <= LAYOUT.pages_for(MOST) + 1 for one in ring.samples)


@given(asked=requests, pages=st.integers(1, 40), more=st.integers(0, 40))
def test_a_larger_ring_keeps_samples_longer(asked: list[tuple[int, int]], pages: int, more: int) -> None:
    small, large = (Ring(LAYOUT, LAYOUT.size_for(size), MOST, 0.2) for size in (pages + 12, pages + more + 12))
    fill(small, asked)
    fill(large, asked)
    assert {one.id for one in small.samples} <= {one.id for one in large.samples}
    if small.samples:
        assert (small.oldest_age(100.0) or 0) <= (large.oldest_age(100.0) or 0)


@settings(max_examples=10, deadline=None)
@given(asked=requests, after=st.floats(0, 50))
def test_what_is_older_than_it_may_be_is_gone(asked: list[tuple[int, int]], after: float) -> None:
    with TemporaryDirectory() as folder:
        ring = WrittenRing(Path(folder) / "spool", LAYOUT, LAYOUT.size_for(30), MOST, 0.2)
        fill(ring, asked)
        held = len(ring.samples)
        left = [one.id for one in ring.samples if one.created >= after]
        assert ring.expire(after) == (len(left) < held)
        assert [one.id for one in ring.samples] == left
        assert ring.agrees()
        ring.close()


def test_newest_samples_by_split() -> None:
    ring = Ring(LAYOUT, LAYOUT.size_for(1000), MOST, 0.5)
    fill(ring, [(10, 10)] * 40)
    train, held_out = ring.newest("train", 5), ring.newest("held_out", 1000)
    assert [one.id for one in train] == [one.id for one in ring.samples if one.split == "train"][:-6:-1]
    assert 0 < len(held_out) < 40
