from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.trigger import should_train


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.booleans(), st.booleans())
def test_enough_tokens_or_a_request_start_one_cycle_at_a_time(new: int, threshold: int, running: bool, requested: bool):
    decision = should_train(new, threshold, running=running, requested=requested)
    assert decision.train == (not running and (requested or new >= threshold))
    assert decision.reason


def test_reasons_name_the_figures():
    assert should_train(500, 6000).reason == "500 of 6000 new tokens stored"
    assert "6000" in should_train(6001, 6000).reason
    assert "running" in should_train(6001, 6000, running=True).reason
    assert "asked for" in should_train(0, 6000, requested=True).reason
