"""What the trainer answers too late, and whatever else comes at the wrong moment."""

from __future__ import annotations

import pytest
from histories import COMPARE, History, requests, said, with_a_new_draft
from hypothesis import given, settings
from hypothesis import strategies as st

from tide_cli.supervisor.learning import Doing
from tide_cli.supervisor.messages import (
    ENGINE,
    TRAINER,
    Answer,
    Answered,
    Exited,
    MarkBad,
    Message,
    PauseAsked,
    Serve,
    Swap,
    Swapped,
    Tell,
    Tick,
    Totals,
    TrainAsked,
    TrainerSaid,
    UseAsked,
)

BETTER = said("pool", version=0, served=1, reason="v0000: gains 0.3")
ENDS = pytest.mark.parametrize("ends", [BETTER, said("error", message="no space left")], ids=["answer", "error"])


def compared() -> History:
    """v0001 is in doubt, and the trainer replays it beside v0000."""
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    return history


@ENDS
def test_a_comparison_that_ends_while_the_user_swaps_replaces_no_wish(ends: Message) -> None:
    history = compared()
    assert history.tell(UseAsked(7, 5)) == [Swap(5, 1)]
    told = len(history.notes)
    assert history.tell(ends) == []
    assert len(history.notes) == told + 1  # recorded
    assert history.tell(Swapped(5, 1)) == [Serve(5), Answer(7, True, "v0005 is served")]
    assert history.tell(Tick()) == []
    assert "rollback" not in history.kinds()


@ENDS
def test_a_comparison_says_nothing_of_a_later_version_in_doubt(ends: Message) -> None:
    history = compared()
    history.tell(UseAsked(7, 5))
    history.tell(Swapped(5, 1))
    assert history.tell(requests(5, 1.08, 50, first=300)) == []
    assert history.kinds()[-1] == "doubt"
    assert history.tell(ends) == [Tell({"cmd": "choose", "served": 5, "among": [1]})]
    assert history.core.learning.served == 5


@ENDS
def test_a_version_in_doubt_is_compared_again_where_the_swap_meanwhile_fails(ends: Message) -> None:
    history = compared()
    history.tell(UseAsked(7, 5))
    history.tell(ends)
    refused = history.tell(Swapped(5, 1, "another vocabulary"))
    assert refused == [Answer(7, False, "v0005 was refused: another vocabulary"), COMPARE]
    assert (Swap(0, 1) in history.tell(ends)) == (ends == BETTER)


def test_what_was_judged_against_a_version_that_has_left_is_not_served() -> None:
    history = with_a_new_draft()
    assert history.tell(Totals({"tokens": 2000})) == [Tell({"cmd": "train", "served": 1})]
    history.tell(UseAsked(7, 5))
    history.tell(Swapped(5, 1))
    assert history.tell(said("published", cycle=2, version=2, parent=1)) == []
    assert (
        history.notes[-1].text == "v0002 published and not served; too late: another version is served, or about to be"
    )
    assert history.tell(said("cycle_end", cycle=2, published=2)) == []
    assert history.core.learning.served == 5


def test_what_was_chosen_over_a_version_that_has_left_is_not_served() -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 150}))
    history.tell(requests(0, 1.8, 60))
    assert history.tell(requests(0, 1.3, 30, first=100)) == [Tell({"cmd": "choose", "served": 0})]
    history.tell(UseAsked(7, 5))
    history.tell(Swapped(5, 1))
    chosen = said("pool", version=3, served=0, reason="v0003: gains 0.3")
    assert history.tell(chosen) == [Tell({"cmd": "train", "served": 5})]  # the traffic has changed none the less


def hopeless_in_a_cycle() -> History:
    """v0001 is taken back while a cycle trains on from it."""
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    marked, swap = history.tell(requests(1, 1.1, 30, first=200))
    assert isinstance(marked, MarkBad)
    assert swap == Swap(0, 1)
    return history


def test_a_cycle_on_a_version_that_is_being_taken_back_replaces_nothing() -> None:
    history = hopeless_in_a_cycle()
    history.tell(said("gate", cycle=2, passed=True, candidate_al=1.3, served_al=1.1))
    assert history.tell(said("published", cycle=2, version=2, parent=1)) == []
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    assert history.core.learning.performance.watch is None  # it is not on trial


def test_a_version_taken_back_during_the_swap_to_its_successor_takes_that_one_back_too() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    assert history.tell(said("published", cycle=2, version=2, parent=1)) == [Swap(2, 1)]
    (marked,) = history.tell(requests(1, 1.1, 30, first=200))
    assert isinstance(marked, MarkBad)
    assert history.tell(Swapped(2, 1)) == [Serve(2), Swap(0, 1)]
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    assert history.core.learning.performance.watch is None


def test_a_swap_to_the_successor_that_is_refused_leaves_the_way_back() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    history.tell(said("published", cycle=2, version=2, parent=1))
    history.tell(requests(1, 1.1, 30, first=200))
    assert history.tell(Swapped(2, 1, "damaged")) == [Swap(0, 1)]


@pytest.mark.parametrize("length", [1.2, 1.1], ids=["in doubt", "seldom right"])
def test_what_falls_short_while_the_users_swap_fails_is_compared_after_it(length: float) -> None:
    history = with_a_new_draft()
    history.tell(UseAsked(7, 5))
    assert history.tell(requests(1, length, 30, first=200)) == []
    assert "rollback" not in history.kinds()
    history.tell(Exited(ENGINE, 1, -9))
    history.tell(Tick(), at=history.now + 1)
    assert history.tell(Answered(2)) == [Serve(1), COMPARE]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (PauseAsked(9, True), "training has been paused"),
        (Exited(TRAINER, 1, 1), "the trainer ended"),
        (Exited(ENGINE, 1, 1), "the engine ended"),
    ],
    ids=["pause", "trainer", "engine"],
)
def test_who_waits_for_a_cycle_is_told_that_none_begins(message: Message, why: str) -> None:
    history = History().serving()
    history.tell(UseAsked(7, 5))
    assert history.tell(TrainAsked(8)) == []
    assert Answer(8, False, why) in history.tell(message)
    history.tell(PauseAsked(10, False))
    assert Tell({"cmd": "train", "served": 5}) not in history.tell(Swapped(5, 1))  # nor later


def test_what_the_trainer_does_instead_of_a_cycle_is_said_to_who_wants_one() -> None:
    history = compared()
    (answer,) = history.tell(TrainAsked(8))
    assert "is being compared with the one before" in answer.text
    ended = history.kinds().count("cycle_end")
    history.tell(Exited(TRAINER, 1, 1))
    assert history.kinds().count("cycle_end") == ended  # no cycle was lost


LATE = st.one_of(
    st.builds(said, st.just("published"), version=st.integers(0, 5), parent=st.integers(0, 5)),
    st.builds(said, st.just("pool"), version=st.none() | st.integers(0, 5), served=st.integers(0, 5)),
    st.builds(said, st.sampled_from(["gate", "cycle_end", "error"])),
    st.builds(said, st.sampled_from(["pool", "cycle_end"]), reason=st.just("cancelled")),
)
OTHERS = st.one_of(
    st.builds(requests, st.integers(0, 5), st.sampled_from([1.0, 1.2, 1.5, 1.8]), st.integers(5, 60)),
    st.builds(Swapped, st.integers(0, 5), st.just(1), st.sampled_from([None, "no"])),
    st.builds(UseAsked, st.integers(200, 299), st.integers(0, 5)),
    st.builds(TrainAsked, st.integers(100, 199)),
    st.builds(PauseAsked, st.integers(400, 499), st.booleans()),
    st.builds(Totals, st.fixed_dictionaries({"tokens": st.integers(0, 9000)})),
)


@settings(deadline=None)
@given(st.lists(LATE | OTHERS, max_size=40))
def test_whatever_the_trainer_answers_no_wish_is_replaced_and_it_comes_to_rest(messages: list[Message]) -> None:
    history = with_a_new_draft()
    serving = history.core.learning.serving
    for message in messages:
        wish, served = serving.wish, serving.served
        history.tell(message)
        if wish is not None and isinstance(message, TrainerSaid):
            assert (serving.wish, serving.served) == (wish, served)
    history.tell(PauseAsked(1, True))
    for _ in range(4):  # a swap of before, one that was due then, a comparison, a version that was taken back
        history.tell(said("error", message="the end"))
        if serving.wish is not None:
            history.tell(Swapped(serving._swap.version, 1))
    assert history.core.learning.doing is Doing.NOTHING
    assert serving.wish is serving.doubt is None
