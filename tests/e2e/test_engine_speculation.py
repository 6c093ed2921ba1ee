"""The speculation policy inside the real engine: whatever number of draft steps a round takes, no token changes."""

from __future__ import annotations

import itertools
import json
import threading

import pytest
from engines import Appliance, in_parallel

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def speculation(appliance: Appliance) -> dict:
    return appliance.http.get("/server_info").json()["internal_states"][0]["tide"]["speculation"]


def test_round_times_were_measured_before_the_engine_was_called_ready(appliance: Appliance) -> None:
    rounds = speculation(appliance)["profile"]["rounds"]
    assert {(row["batch"], row["steps"]) for row in rounds} == set(itertools.product((1, 2, 4, 8), range(4)))
    assert all(row["seconds"] >= row["verify"] > 0 for row in rounds)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_output_is_that_of_plain_sglang_while_the_steps_change(
    appliance: Appliance, prompt_ids: list[list[int]], plain_outputs: list[list[int]], concurrency: int
) -> None:
    """From 0 to 3 and back, in the middle of requests: what the draft has not read meanwhile it reads later."""
    appliance.flush_cache()
    before, over = speculation(appliance)["rounds"], threading.Event()

    def requests() -> list[list[int]]:
        answers = appliance.greedy(prompt_ids[:8], len(plain_outputs[0]), concurrency, f"steps-{concurrency}")
        over.set()
        return [answer["output_ids"] for answer in answers]

    def switches() -> int:
        for count, steps in enumerate(itertools.cycle([0, 3, 1, 0, 2])):
            appliance.set_steps(steps)
            if over.wait(0.3):
                return count
        raise AssertionError

    try:
        outputs, count = in_parallel(2, [requests, switches])
    finally:
        appliance.set_steps(-1)
    assert outputs == plain_outputs[:8]
    assert count >= 5
    after = speculation(appliance)["rounds"]
    assert all(after.get(steps, 0) > before.get(steps, 0) for steps in "0123")


def test_a_draft_that_is_never_right_ends_in_plain_decoding(
    appliance: Appliance, prompt_ids: list[list[int]], plain_outputs: list[list[int]]
) -> None:
    """The first draft knows nothing yet."""
    answers = appliance.greedy(prompt_ids, len(plain_outputs[0]), 4, "policy")
    assert [answer["output_ids"] for answer in answers] == plain_outputs
    state = speculation(appliance)
    assert state["steps"] == 0
    assert state["acceptance"][0] < 0.2
    assert "at batch size" in state["reason"]  # the switch itself, or what plain decoding promises since a swap


def test_profile_measures_anew(appliance: Appliance) -> None:
    before = speculation(appliance)["profile"]["measured"]
    measured = json.loads(appliance.tide("profile", "--json").stdout)
    assert measured["measured"] > before
    assert measured["conditions"]["target"] == "smollm2-135m"
    assert not speculation(appliance)["measuring"]
