"""What the trainer answers too late, and whatever else comes at the wrong moment."""

from __future__ import annotations

import pytest
from histories import COMPARE, History, requests, said, speculates, with_a_new_draft
from hypothesis import given, settings
from hypothesis import strategies as st

from tide_cli.supervisor import status
from tide_cli.supervisor.learning import Doing
from tide_cli.supervisor.messages import (
    ENGINE,
    TRAINER,
    Action,
    Answer,
    Answered,
    Began,
    DraftChosen,
    Exited,
    MarkBad,
    Message,
    Passed,
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


# --- a version that has passed the gate


def published(cycle: int = 2, version: int = 2, parent: int = 1) -> list[Message]:
    """A cycle's last words."""
    gate = said("gate", cycle=cycle, passed=True, candidate_al=1.9, served_al=1.7, lower_bound=0.1)
    return [gate, said("published", cycle=cycle, version=version, parent=parent)]


def doubted_in_a_cycle() -> History:
    """v0001 falls short of v0000 while a cycle trains on from it, and the cycle has published v0002."""
    history = with_a_new_draft()
    assert history.tell(Totals({"tokens": 2000})) == [Tell({"cmd": "train", "served": 1})]
    assert history.tell(requests(1, 1.2, 30, first=200)) == []
    assert [action for message in published() for action in history.tell(message)] == []
    assert history.notes[-1].text == "v0002 published; it waits until v0001 is compared with the one before"
    assert history.tell(said("cycle_end", cycle=2, published=2)) == [COMPARE]
    return history


def test_a_successor_waits_until_the_version_in_doubt_is_compared_with_the_one_before() -> None:
    history = doubted_in_a_cycle()
    stays = said("pool", version=None, served=1, reason="none of 1 kept versions passed the gate")
    assert history.tell(stays) == [Swap(2, 1)]
    assert history.tell(Swapped(2, 1)) == [Serve(2)]
    watch = history.core.learning.performance.watch
    assert watch is not None
    assert (watch.previous, watch.forecast) == (1, 1.9)


def test_the_successor_of_a_version_that_is_taken_back_is_not_served() -> None:
    history = doubted_in_a_cycle()
    marked, swap = history.tell(BETTER)
    assert (type(marked), swap) == (MarkBad, Swap(0, 1))
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    text = "v0002 is not served: v0001 has left, against which it has passed the gate"
    assert history.notes[-1].text == text
    assert history.tell(Tick(), at=history.now + 1000) == []


def test_a_comparison_that_fails_keeps_no_successor_waiting() -> None:
    assert doubted_in_a_cycle().tell(said("error", message="no space left")) == [Swap(2, 1)]


def test_a_version_that_has_passed_and_was_refused_is_tried_again_and_not_for_ever() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    for message in published():
        history.tell(message)
    history.tell(said("cycle_end", cycle=2, published=2))
    history.tell(Totals({"tokens": 9000}))
    for wait in (10, 60):
        assert history.tell(Swapped(2, 1, "no space left")) == []  # nor is a cycle begun from v0001 meanwhile
        assert history.notes[-1].text == f"v0002 not taken: no space left; the next attempt follows in {wait} s"
        assert history.tell(TrainAsked(8)) == [Answer(8, False, "v0002 waits to be served; try again in a minute")]
        assert history.tell(Tick(), at=history.now + wait - 1) == []
        assert history.tell(Tick(), at=history.now + 1) == [Swap(2, 1)]
    assert history.tell(Swapped(2, 1, "no space left")) == [Tell({"cmd": "train", "served": 1})]
    assert history.kinds().count("swap_refused") == 3
    assert history.notes[-2].text.endswith("that was the last of 3 attempts")


def test_a_version_that_was_refused_once_is_served_in_the_end() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    for message in published():
        history.tell(message)
    history.tell(Swapped(2, 1, "timed out"))
    serving = history.core.learning.serving
    assert serving.in_use == {0, 1, 2}  # the way back, the served one, and the one that waits
    assert history.tell(Tick(), at=history.now + 10) == [Swap(2, 1)]
    assert history.tell(Swapped(2, 1)) == [Serve(2)]
    assert serving.passed is None
    assert serving.in_use == {1, 2}


def test_the_users_choice_comes_before_a_version_that_was_refused() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    for message in published():
        history.tell(message)
    history.tell(said("cycle_end", cycle=2, published=2))
    history.tell(Swapped(2, 1, "timed out"))
    history.tell(UseAsked(7, 1))  # the served one, which shall stay
    history.tell(Swapped(1, 1))
    assert history.notes[-1].text == "v0002 is not served: v0001 was chosen after it"
    assert history.tell(Tick(), at=history.now + 1000) == []


def test_a_version_published_during_the_users_swap_is_served_where_that_fails() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    history.tell(UseAsked(7, 5))
    for message in published():
        assert history.tell(message) == []
    assert history.tell(Swapped(5, 1, "damaged")) == [Answer(7, False, "v0005 was refused: damaged"), Swap(2, 1)]


def test_a_version_that_passed_in_an_earlier_life_is_served_before_the_next_cycle() -> None:
    history = History()
    history.tell(Began())
    history.tell(DraftChosen(3, passed=Passed(4, {"candidate_al": 1.8, "served_al": 1.5})))
    history.tell(Totals({"tokens": 9000}))
    assert history.tell(Answered(1))[-1] == Swap(4, 1)
    history.tell(said("ready"))
    assert history.tell(Swapped(4, 1)) == [Serve(4), Tell({"cmd": "train", "served": 4})]
    watch = history.core.learning.performance.watch
    assert watch is not None
    assert (watch.previous, watch.forecast, watch.expected_before) == (3, 1.8, 1.5)


# --- what the engine says it serves


def test_a_swap_that_was_carried_out_late_is_known_when_the_engine_has_said_so_twice() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 2000}))
    for message in published():
        history.tell(message)
    history.tell(said("cycle_end", cycle=2, published=2))
    history.tell(Swapped(2, 1, "the engine did not answer the swap to v0002"))
    assert history.tell(speculates(2)) == []  # it may be older than another swap
    assert history.tell(speculates(2)) == [Serve(2)]
    assert history.notes[-1].text == "v0002 is served; the engine has not confirmed the swap, and reports it"
    watch = history.core.learning.performance.watch
    assert watch is not None
    assert (watch.previous, watch.forecast) == (1, 1.9)
    assert history.tell(Tick(), at=history.now + 1000) == []  # nothing more to try
    assert history.tell(requests(2, 1.0, 30, first=400))[-1] == Swap(1, 1)


def test_a_way_back_that_was_carried_out_late_is_not_on_trial() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.1, 30, first=200))[-1] == Swap(0, 1)
    history.tell(Swapped(0, 1, "timed out"))
    history.tell(speculates(0))
    assert history.tell(speculates(0)) == [Serve(0)]
    assert history.core.learning.performance.watch is None


def test_a_report_of_before_a_swap_is_not_believed() -> None:
    history = with_a_new_draft()
    for report in (speculates(0), speculates(1), speculates(0), speculates(None), speculates(0)):
        assert history.tell(report) == []
    history.tell(UseAsked(7, 5))
    for _ in range(3):
        assert history.tell(speculates(5)) == []  # the swap is under way, and will be answered
    assert history.tell(Swapped(5, 1)) == [Serve(5), Answer(7, True, "v0005 is served")]
    assert history.tell(speculates(1)) == []
    assert history.core.learning.served == 5


def settle(history: History, refuses: bool) -> list[Action]:
    """Everybody who owes an answer gives one, and an hour goes by."""
    learning, answers = history.core.learning, list[Message]()
    if learning.serving._swap is not None:
        answers.append(Swapped(learning.serving._swap.version, 1, "no" if refuses else None))
    ends = {
        Doing.CYCLE: said("cycle_end", published=None, reason="not above the margin"),
        Doing.POOL: said("pool", version=None, served=learning.served, reason="none passed"),
        Doing.COMPARISON: said("pool", version=None, served=learning.served, reason="none passed"),
    }
    answers += [ends[learning.doing]] if learning.doing in ends else []
    actions = [action for answer in answers for action in history.tell(answer)]
    return actions + history.tell(Tick(), at=history.now + 3600)


def test_the_status_tells_what_the_trainer_does() -> None:
    history = with_a_new_draft()
    learning = history.core.learning
    assert status.cycle(learning, True)["state"] == "waiting"
    history.tell(Totals({"tokens": 2000}))
    assert status.cycle(learning, True)["state"] == "begins"
    history.tell(said("gate", passed=False, lower_bound=-0.1, reason="no gain", decided_from={"input": {}}))
    history.tell(said("cycle_end", cycle=2, published=None))
    assert status.gate(learning) == {"event": "gate", "passed": False, "lower_bound": -0.1, "reason": "no gain"}
    history.tell(requests(1, 1.2, 30, first=200))
    assert status.cycle(learning, True)["state"] == "comparing"
    history.tell(said("error", message="no space left"))
    history.tell(requests(1, 1.8, 60, first=300))
    history.tell(requests(1, 1.3, 60, first=400))
    assert status.cycle(learning, True)["state"] == "choosing"


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
    # a swap of before, one that was due then, a comparison, a version that was taken back, one that has passed
    for _ in range(5):
        history.tell(said("error", message="the end"))
        if serving.wish is not None:
            history.tell(Swapped(serving._swap.version, 1))
    assert history.core.learning.doing is Doing.NOTHING
    assert serving.wish is serving.doubt is None


@settings(deadline=None)
@given(st.lists(LATE | OTHERS, max_size=40), st.booleans())
def test_whatever_has_happened_without_news_nothing_is_asked_for_any_more(
    messages: list[Message], refuses: bool
) -> None:
    """Neither of an engine that refuses every swap nor of one that takes them."""
    history = with_a_new_draft()
    for message in messages:
        history.tell(message)
    for _ in range(12):  # three attempts of a swap, a way back, what waits for each of the trainer's works
        if not settle(history, refuses):
            break
    assert settle(history, refuses) == []
    serving = history.core.learning.serving
    assert serving.wish is serving.doubt is serving.passed is None


ANSWERS = st.tuples(st.just("answer"), st.sampled_from(["taken", "refused", "taken, and too late"]))


@settings(deadline=None)
@given(st.lists(LATE | OTHERS.filter(lambda message: not isinstance(message, Swapped)) | ANSWERS, max_size=40))
def test_what_the_engine_serves_is_known_in_the_end(messages: list[Message | tuple[str, str]]) -> None:
    """Also where it has carried out a swap whose confirmation got lost."""
    history, has = with_a_new_draft(), 1
    serving = history.core.learning.serving
    for message in messages:
        if not isinstance(message, tuple):
            history.tell(message)
        elif serving._swap is not None:
            how, swap = message[1], serving._swap
            has = has if how == "refused" else swap.version
            history.tell(Swapped(swap.version, 1, None if how == "taken" else "no answer"))
    for _ in range(9):
        if serving._swap is not None:
            has = serving._swap.version
            history.tell(Swapped(has, 1))
        history.tell(speculates(has))
    assert serving.served == has
