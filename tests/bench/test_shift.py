"""Which requests go to which arm, in which order."""

from __future__ import annotations

import pytest

from tide_cli.bench.requests import Request
from tide_cli.bench.shift import MIXED, hold_out, interleave, make_phases, never_measured, pieces, turns
from tide_cli.errors import UsageError


def prompts(name: str, count: int) -> list[Request]:
    return [Request(({"role": "user", "content": f"{name} {i}"},), 8, domain=name) for i in range(count)]


def texts(requests) -> list[str]:
    return [request.messages[0]["content"] for request in requests]


def test_what_is_measured_is_never_traffic() -> None:
    all_of_them = prompts("a", 20)
    measured, traffic = hold_out("a", all_of_them, 6, seed=3)
    assert len(measured) == 6
    assert sorted(texts(measured + traffic)) == sorted(texts(all_of_them))
    assert hold_out("a", all_of_them, 6, seed=3) == (measured, traffic)
    assert hold_out("a", all_of_them, 6, seed=4) != (measured, traffic)
    with pytest.raises(UsageError, match="the domain a has 20 different prompts"):
        hold_out("a", all_of_them, 17, seed=3)


def test_what_another_domain_measures_is_no_traffic() -> None:
    mine = [*prompts("a", 5), *(Request(one.messages, 8, domain="b") for one in prompts("x", 2))]
    assert texts(never_measured("b", mine, prompts("x", 9))) == texts(prompts("a", 5))
    with pytest.raises(UsageError, match="the domain b has 2 prompts left for traffic"):
        never_measured("b", mine[3:], prompts("x", 9))


def test_a_domain_that_comes_again_goes_on_where_it_was() -> None:
    phases = make_phases({"a": prompts("a", 5), "b": prompts("b", 9)}, ["a", "b", "a"], 3, mixed=4)
    assert [(phase.name, phase.visit) for phase in phases] == [("a", 0), ("b", 0), ("a", 1), (MIXED, 0)]
    assert texts(phases[0].requests) == ["a 0", "a 1", "a 2"]
    assert texts(phases[2].requests) == ["a 3", "a 4", "a 0"]  # used up, so from the beginning
    assert texts(phases[3].requests) == ["a 1", "b 3", "a 2", "b 4"]


def test_sources_take_turns() -> None:
    assert texts(interleave([prompts("a", 1), prompts("b", 2)], 5)) == ["a 0", "b 0", "a 0", "b 1", "a 0"]


def test_pieces_hold_every_request_once() -> None:
    requests = prompts("a", 7)
    cut = pieces(requests, 3)
    assert [len(piece) for piece in cut] == [3, 3, 1]
    assert [request for piece in cut for request in piece] == requests


def test_no_arm_is_always_first() -> None:
    assert [turns(["s", "t"], number) for number in range(3)] == [["s", "t"], ["t", "s"], ["s", "t"]]
