from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.gate import Walk, decide
from tide_cli.adaptation.pool import Kept, choose_version, walk_order, walked_enough
from tide_cli.adaptation.retention import retain

GATE = {"margin": 0.02, "seed": 0, "floor": 0.10}


def kept(version: int, parent: int | None = None, **al: float) -> Kept:
    return Kept(version, parent, al)


def test_what_differs_most_is_walked_first():
    versions = [
        kept(0),
        kept(1, 0, code=1.8, sql=1.3),
        kept(2, 1, code=1.82, sql=1.31),
        kept(3, 1, code=1.4, sql=1.6),
        kept(4, 3, code=1.401, sql=1.599),
    ]
    order = walk_order(versions, served=2, limit=2)
    # v0004 is nearly v0003, so after that one the next that teaches something is v0001
    assert order.versions == (3, 1)
    assert order.reason == "v0003, v0001 of 4 kept versions, the most different first"
    assert walk_order(versions, 2, 9).versions == (3, 1, 4, 0)


def test_without_figures_descent_decides():
    chain = [kept(0), kept(1, 0), kept(2, 1), kept(3, 2), kept(4, 0)]
    assert walk_order(chain, served=3, limit=1).versions == (4,)  # four steps away over v0000


def test_versions_are_walked_while_there_is_time():
    assert not walked_enough(3, 60.0)
    assert not walked_enough(15, 9.0)
    assert walked_enough(4, 10.0)


def test_what_was_taken_back_is_not_walked():
    versions = [kept(0), kept(1, 0), kept(3, 0)]
    assert walk_order(versions, served=0, limit=9, bad={1}).versions == (3,)
    assert walk_order(versions[:1], served=0, limit=9).reason == "none of 0 kept versions, the most different first"
    with pytest.raises(ValueError, match="v0009"):
        walk_order(versions, served=9, limit=1)


@given(st.lists(st.none() | st.integers(0, 20), max_size=12), st.integers(0, 8), st.data())
def test_the_order_is_bounded_and_without_repetition(parents: list[int | None], limit: int, data: st.DataObject):
    """Whatever parents a store names, cycles and removed ones included."""
    versions = [kept(0), *(kept(number, parent) for number, parent in enumerate(parents, start=1))]
    served = data.draw(st.integers(0, len(parents)))
    order = walk_order(versions, served, limit).versions
    assert len(order) == len(set(order)) == min(limit, len(parents))
    assert served not in order
    assert order == walk_order(versions[::-1], served, limit).versions


def test_the_best_that_passes_is_chosen():
    served = [Walk(20, 10)] * 12
    walked = {3: [Walk(24, 10)] * 12, 5: [Walk(28, 10)] * 12, 6: [Walk(19, 10)] * 12}
    decision = choose_version(walked, served, confidence=0.95, **GATE)
    assert decision.version == 5
    assert decision.reason.startswith("v0005: gain +0.800")
    assert {version: gate.passed for version, gate in decision.gates.items()} == {3: True, 5: True, 6: False}
    none = choose_version({6: walked[6]}, served, confidence=0.95, **GATE)
    assert (none.version, none.reason) == (None, "none of 1 kept versions passed the gate")
    assert choose_version({}, served, confidence=0.95, **GATE).version is None


def test_old_traffic_counts_for_kept_versions_too():
    served = [Walk(20, 10)] * 12
    old = {"old_walked": {3: [Walk(15, 10)] * 4}, "old_served": [Walk(20, 10)] * 4}
    assert choose_version({3: [Walk(28, 10)] * 12}, served, confidence=0.95, **old, **GATE).version is None


def test_many_versions_share_one_error():
    served = [Walk(20, 10)] * 12
    walks = [Walk(21, 10)] * 4 + [Walk(20, 10)] * 8  # just enough for one
    alone = decide(walks, served, confidence=0.95, **GATE)
    assert alone.passed
    among = choose_version(dict.fromkeys(range(20), walks), served, confidence=0.95, **GATE)
    assert among.version is None
    assert among.gates[0].lower_bound < alone.lower_bound


@pytest.mark.parametrize("confidence", [0.95, 1 - 2**-52, 1 - 2**-53])
def test_no_share_of_the_error_is_too_small_for_a_bound(confidence: float):
    served = [Walk(20, 10), Walk(21, 10)] * 3
    walked = dict.fromkeys(range(4), [Walk(40, 10), Walk(41, 10)] * 3)
    assert choose_version(walked, served, confidence=confidence, **GATE).gates.keys() == {0, 1, 2, 3}


versions = st.sets(st.integers(0, 30))


@given(versions, st.integers(1, 12), st.data())
def test_what_is_needed_stays_and_the_bound_holds_otherwise(held: set[int], limit: int, data: st.DataObject):
    one = st.none() | st.integers(0, 31)
    served, previous, parent = data.draw(one), data.draw(one), data.draw(one)
    pinned, bad = data.draw(versions), data.draw(versions)
    conditions = data.draw(st.lists(st.dictionaries(st.integers(0, 31), st.floats(1, 4)), max_size=4))
    others = data.draw(st.dictionaries(st.integers(0, 31), st.just("needed")))
    plan = retain(
        held,
        limit,
        served=served,
        previous=previous,
        parent=parent,
        pinned=pinned,
        conditions=conditions,
        bad=bad,
        needed=others,
    )
    more = data.draw(st.dictionaries(st.integers(0, 31), st.just("replay")))
    wider = retain(
        held,
        limit,
        served=served,
        previous=previous,
        parent=parent,
        pinned=pinned,
        conditions=conditions,
        bad=bad,
        needed=others,
        beside=more,
    )
    assert wider.keep == {version: "replay" for version in held & more.keys()} | plan.keep  # it takes no room
    assert wider.keep.keys() | set(wider.remove) == held
    assert not wider.keep.keys() & set(wider.remove)
    needed = held & ({served, previous, parent, *pinned, *others} | ({max(held)} if held else set()))
    assert needed <= plan.keep.keys()
    assert len(plan.keep) <= max(limit, len(needed))
    assert plan.keep.keys() | set(plan.remove) == held
    assert not plan.keep.keys() & set(plan.remove)
    assert not (plan.keep.keys() - needed) & bad
    assert list(plan.remove) == sorted(plan.remove)


def test_the_best_of_each_condition_stays_before_recent_ones():
    conditions = [{1: 1.2, 2: 1.5, 9: 9.0}, {0: 1.9, 2: 1.1}]
    plan = retain(range(8), 5, served=7, conditions=conditions)
    assert plan.keep == {
        7: "served",
        2: "best on recent traffic",
        0: "best on recent traffic",
        6: "recent",
        5: "recent",
    }
    assert plan.remove == (1, 3, 4)
    assert retain([], 3, served=None).keep == {}
