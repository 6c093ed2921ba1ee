from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.drafts.history import figures, served_before


def swap(version: int, before: int | None) -> dict:
    return {"kind": "swap", "data": {"version": version, "before": before}}


def ready(version: int | None) -> dict:
    return {"kind": "ready", "data": {"seconds": 9.0, "version": version}}


def test_the_last_change_to_the_served_version_counts():
    wish = {"kind": "use", "data": {"version": 3}}
    assert served_before([], 0) is None
    assert served_before([swap(0, None)], 0) is None
    assert served_before([swap(1, 0), swap(2, 1)], 2) == 1
    assert served_before([swap(1, 0), wish], 1) == 0
    assert served_before([swap(2, 1), swap(1, 2), swap(2, 2)], 2) == 1  # the same one again is no change
    # a version that was only asked for is no way back, and none is lost by it
    assert served_before([swap(1, 0), swap(3, 1), wish], 2) == 3
    assert served_before([swap(1, 0), swap(3, 1), wish, ready(3)], 3) == 1
    assert served_before([swap(1, 0), wish, ready(2), ready(2)], 2) == 1  # served from a start on
    assert served_before([ready(None), ready(0)], 0) is None


@given(st.lists(st.integers(0, 5), min_size=2, max_size=12))
def test_going_back_twice_leads_where_one_was(served: list[int]):
    events = [swap(now, before) for before, now in pairwise(served) if now != before]
    back = served_before(events, served[-1])
    if not events:
        assert back is None
        return
    assert back == events[-1]["data"]["before"]
    assert served_before([*events, swap(back, served[-1])], back) == served[-1]


def live(**domains: tuple[float, int]) -> dict:
    return {"domains": {name: {"acceptance_length": al, "requests": n} for name, (al, n) in domains.items()}}


def test_figures_are_those_of_the_version_that_they_are_about():
    left = {"id": 1, "kind": "swap", "data": {"version": 1, "before": 0, **live(code=(1.4, 20), sql=(1.3, 7))}}
    kept = {"id": 2, "kind": "trusted", "data": {"version": 1, **live(code=(1.8, 9))}}
    walked = [{"version": 0, "candidate_al": 1.6, "served_al": 1.2}]
    pool = {"id": 3, "kind": "pool", "data": {"version": None, "served": 1, "walked": walked}}
    again = {"id": 4, "kind": "swap", "data": {"version": 2, "before": 1, **live(code=(1.7, 80), sql=(1.5, 30))}}
    first = {"id": 0, "kind": "swap", "data": {"version": 0, "before": None, **live(code=(1.0, 99))}}
    assert figures([first, left, kept, pool, again]) == {
        "requests of sql": {1: 1.5},  # seven requests say nothing yet
        "requests of code": {0: 1.4, 1: 1.7},
        "samples of event 3": {1: 1.2, 0: 1.6},
    }
    assert next(iter(figures([left, kept, pool]))) == "samples of event 3"  # the newest first
    nothing = {"id": 5, "kind": "pool", "data": {"version": None, "served": 1, "walked": []}}
    assert figures([nothing, {"id": 6, "kind": "rollback", "data": {}}]) == {}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("swap", {"before": 0, "domains": {"code": {"requests": 20}}}),
        ("swap", {"before": 0, "domains": {"code": {"requests": 20, "acceptance_length": None}}}),
        ("swap", {"before": 0, "domains": {"code": 1.4}}),
        ("swap", {"before": 0, "domains": ["code"]}),
        ("pool", {"walked": [{"version": 0, "candidate_al": 1.6, "served_al": 1.2}]}),
        ("pool", {"served": 1, "walked": [{"version": 0}]}),
        ("pool", {"served": 1, "walked": [{"version": "v0000", "candidate_al": 1.6, "served_al": 1.2}]}),
        ("pool", {"served": 1, "walked": {"0": 1.6}}),
    ],
)
def test_an_event_that_another_version_of_the_program_has_written_is_passed_over(kind: str, data: dict):
    known = {"id": 2, "kind": "trusted", "data": {"version": 1, **live(code=(1.8, 9))}}
    assert figures([{"id": 1, "kind": kind, "data": data}, known]) == {"requests of code": {1: 1.8}}
