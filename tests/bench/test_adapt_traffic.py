"""Traffic that is cut into pieces, and pieces whose requests arrive as in a trace."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_engine import StubEngine

from tide_cli.bench.adapt_figures import Pass, acceptance_length
from tide_cli.bench.adapt_traffic import along, cut, sums
from tide_cli.bench.arms import send
from tide_cli.bench.client import Answer
from tide_cli.bench.replay import Arrival
from tide_cli.bench.requests import Request
from tide_cli.bench.shift import Phase
from tide_cli.errors import UsageError


def test_an_answer_without_a_verify_step_is_no_part_of_an_acceptance_length() -> None:
    """One token comes of the prompt alone."""

    def answer(tokens: int, steps: int | None) -> Answer:
        return Answer(Request(({"content": "x"},), 8), 0.0, 1.0, 2.0, (1.0,) * tokens, 4, tokens, steps, "text", None)

    found = sums([answer(40, 20), answer(40, 20), *[answer(1, 0)] * 6])
    made = Pass(phase=0, piece=0, arm="tide", begun=0.0, draft=1, training=False, **found)
    assert made.tokens == 86
    assert acceptance_length([made]) == 2.0
    plain = Pass(phase=0, piece=0, arm="plain", begun=0.0, draft=1, training=False, **sums([answer(40, None)]))
    assert acceptance_length([plain]) is None


sizes = st.lists(st.integers(1, 20), min_size=1, max_size=4)
loads = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)
gaps = st.lists(st.integers(0, 50), min_size=80, max_size=80)


def phases_of(counts: list[int]) -> list[Phase]:
    return [
        Phase(f"phase {place}", 0, tuple(Request(({"content": f"{place} {i}"},), 8) for i in range(count)))
        for place, count in enumerate(counts)
    ]


@given(sizes, st.integers(1, 8), loads)
def test_every_request_is_in_one_piece_and_every_concurrency_has_its_turn(
    counts: list[int], size: int, concurrency: list[int]
) -> None:
    for phase in phases_of(counts):
        found = cut(phase, size, concurrency)
        assert [request for piece in found for request in piece.requests] == list(phase.requests)
        for load in concurrency:
            assert [piece.turn for piece in found if piece.concurrency == load] == list(
                range(len(found[concurrency.index(load) :: len(concurrency)]))
            )


@given(sizes, st.integers(1, 8), gaps, st.sampled_from([0.5, 1.0, 4.0]))
def test_requests_arrive_as_in_the_trace(counts: list[int], size: int, waits: list[int], speed: float) -> None:
    moments = [float(sum(waits[:place])) for place in range(len(waits))]
    trace = [Arrival(moment, place % 12) for place, moment in enumerate(moments)]
    phases, arrivals = along(trace, phases_of(counts), speed)
    assert [len(of) for of in arrivals] == counts
    sent = [request for phase in phases for request in phase.requests]
    assert [request.messages for request in sent] == [r.messages for phase in phases_of(counts) for r in phase.requests]
    assert [request.max_tokens for request in sent] == [min(8, max(1, row.output_tokens)) for row in trace[: len(sent)]]
    begun = 0
    for phase, of in zip(phases, arrivals, strict=True):
        for piece in cut(phase, size, [4], of):
            assert (piece.concurrency, (piece.arrivals or ())[0]) == (None, 0.0)
            rows = waits[begun : begun + len(piece.requests) - 1]  # one piece after another along the trace
            assert [(later - one) * speed for one, later in pairwise(piece.arrivals or ())] == pytest.approx(rows)
            begun += len(piece.requests)


def test_a_trace_that_is_too_short_is_refused() -> None:
    with pytest.raises(UsageError, match="the trace has 3 rows, 4 requests are asked for"):
        along([Arrival(0.0, 5)] * 3, phases_of([2, 2]), 1.0)


def test_an_arm_is_sent_its_requests_when_they_arrive() -> None:
    (phase,) = phases_of([3])
    engine = StubEngine()
    try:
        arm = SimpleNamespace(url=engine.url, model="m")
        answers = send(arm, phase.requests, None, arrivals=(0.0, 0.0, 0.01), captured=True)
    finally:
        engine.close()
    assert [answer.request for answer in answers] == list(phase.requests)
    assert len(engine.chats) == 3
