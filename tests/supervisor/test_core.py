"""Histories: a list of (seconds, message), and the actions that the core takes. No process, no clock."""

from __future__ import annotations

from typing import Any

import pytest
from histories import COMPARE, POLICY, History, learning, requests, said, speculates, with_a_new_draft
from hypothesis import given, settings
from hypothesis import strategies as st

from tide_cli.adaptation.trigger import TriggerRules
from tide_cli.supervisor.learning import Doing
from tide_cli.supervisor.lifecycle import State
from tide_cli.supervisor.messages import (
    ENGINE,
    TARGET,
    TRAINER,
    Action,
    Answer,
    Answered,
    Began,
    Broken,
    CaptureLooked,
    ChooseDraft,
    DraftChosen,
    Exited,
    Finish,
    Kill,
    KillAsked,
    MarkBad,
    Message,
    Note,
    Observed,
    PauseAsked,
    Probe,
    Pulse,
    RestartAsked,
    Serve,
    Spawn,
    StopAsked,
    Swap,
    Swapped,
    Tell,
    Terminate,
    Tick,
    Totals,
    TrainAsked,
    UseAsked,
)
from tide_cli.telemetry.totals import ServedRequest


def test_the_way_up() -> None:
    history = History(steps=(TARGET,))
    assert history.tell(Began()) == [Spawn(TARGET, 1)]
    assert history.core.state is State.PREPARING
    assert history.tell(Exited(TARGET, 1, 0)) == [ChooseDraft()]
    assert history.tell(DraftChosen(3)) == [Spawn(ENGINE, 1), Probe(1)]
    assert history.core.state is State.STARTING
    assert history.tell(Answered(1), at=42) == [Serve(3), Spawn(TRAINER, 1)]
    assert history.core.state is State.READY
    assert history.state(TRAINER) is State.STARTING
    assert history.tell(said("ready")) == []
    assert history.state(TRAINER) is State.READY


def test_the_ready_event_carries_the_phases_of_the_start() -> None:
    history = History(steps=(TARGET,), trains=False)
    history.tell(Began(), at=1)
    history.tell(Exited(TARGET, 1, 0), at=8)
    history.tell(DraftChosen(0), at=8)
    history.tell(Answered(1, {"weights": 20.0, "first_token": 2.5}), at=32)
    ready = history.notes[-1]
    assert ready.text == "the engine is ready after 24 s (loading weights 20 s, first token 2 s)"
    assert ready.data == {"seconds": 24, "phases": {"target": 7, "weights": 20.0, "first_token": 2.5}, "version": 0}


def test_a_failed_step_is_fatal_with_its_reason() -> None:
    history = History(steps=(TARGET,))
    history.tell(Began())
    assert history.tell(Exited(TARGET, 1, 1, "no such file")) == [Finish(1)]
    assert history.core.reason == "no such file"
    assert history.core.state is State.FATAL


def test_an_end_that_would_come_again_is_fatal_at_once() -> None:
    history = History(trains=False)
    history.tell(Began())
    history.tell(DraftChosen(0))
    gone = Exited(ENGINE, 1, 2, "wrong arguments\nmend them", final=True, excerpt=("usage", "error"))
    assert history.tell(gone) == [Finish(1)]
    assert history.core.reason == "the engine ended: wrong arguments (exit code 2)\nmend them"
    assert history.core.excerpt == ("usage", "error")


@pytest.mark.parametrize(
    ("explained", "reason"), [(True, "scheduler ended: no memory\nbuy some"), (False, "scheduler ended")]
)
def test_what_the_log_explains_stands_behind_why_we_ended_it(explained: bool, reason: str) -> None:
    history = History().serving()
    child = history.core.children[ENGINE]
    child.reason = "scheduler ended"
    child.stopping(20, 10)
    history.tell(Exited(ENGINE, 1, -9, "no memory\nbuy some", explained=explained), at=21)
    assert child.reason == reason


def test_an_engine_that_was_ready_is_started_again_whatever_its_log_says() -> None:
    history = History().serving()
    history.tell(Exited(ENGINE, 1, 1, "no kernel", final=True), at=20)
    assert history.state(ENGINE) is State.BACKOFF


def test_a_version_that_was_taken_back_by_the_appliance_before_is_marked_and_told_of() -> None:
    history = History(trains=False)
    history.tell(Began())
    back = DraftChosen(0, taken_back=1, reason="v0001 is taken back")
    assert history.tell(back) == [MarkBad(1, "v0001 is taken back"), Spawn(ENGINE, 1), Probe(1)]
    assert history.notes[-1].text == "v0001 was taken back and had not left: v0000 returns"
    assert history.tell(Answered(1)) == [Serve(0)]


def test_no_draft_to_serve_is_fatal() -> None:
    history = History()
    history.tell(Began())
    assert history.tell(DraftChosen(None, "damaged")) == [Finish(1)]
    assert history.core.reason == "damaged"


def test_without_speculation_there_is_no_trainer_and_no_served_version() -> None:
    history = History(trains=False)
    history.tell(Began())
    history.tell(DraftChosen(None))
    assert history.tell(Answered(1)) == []
    assert history.core.state is State.READY


def test_the_engine_comes_back_with_the_served_version_and_the_trainer_stays() -> None:
    history = History().serving()
    assert history.tell(Exited(ENGINE, 1, -9), at=400) == []
    assert history.core.state is State.BACKOFF
    assert history.core.next_deadline() == 401
    assert history.tell(Tick(), at=400.5) == []
    assert history.tell(Tick(), at=401) == [Spawn(ENGINE, 2), Probe(2)]
    assert history.tell(Answered(1)) == []  # an answer that was on its way belongs to the engine before
    assert history.core.state is State.STARTING
    assert history.tell(Answered(2)) == [Serve(0)]
    assert history.state(TRAINER) is State.READY


def test_three_engine_failures_in_a_row_end_the_appliance() -> None:
    history = History().serving()
    history.tell(Exited(ENGINE, 1, 1, "boom"), at=20)
    history.tell(Tick(), at=21)
    history.tell(Exited(ENGINE, 2, 1, "boom"), at=22)
    assert history.core.next_deadline() == 24  # the delay has doubled
    history.tell(Tick(), at=24)
    assert history.tell(Exited(ENGINE, 3, 1, "boom"), at=25) == [Tell({"cmd": "stop"})]
    assert history.core.state is State.STOPPING
    assert history.tell(Exited(TRAINER, 1, 0), at=26) == [Finish(1)]
    assert "boom" in history.core.reason


def test_a_settled_engine_starts_a_new_row_of_failures() -> None:
    history = History().serving()
    at = 10.0
    for generation in range(1, 8):
        at += POLICY.settled
        assert history.tell(Exited(ENGINE, generation, 1), at=at) == []
        assert history.core.state is State.BACKOFF
        at += 1
        history.tell(Tick(), at=at)
        history.tell(Answered(generation + 1), at=at)
    assert history.core.state is State.READY


def test_an_engine_that_gives_no_token_in_time_is_ended_and_started_again() -> None:
    history = History()
    history.tell(Began())
    history.tell(DraftChosen(0))
    assert history.tell(Tick(), at=100) == [Terminate(ENGINE)]
    assert history.tell(Tick(), at=119) == []
    assert history.tell(Tick(), at=120) == [Kill(ENGINE)]
    history.tell(Exited(ENGINE, 1, -9), at=121)
    assert history.core.children[ENGINE].reason == "not ready within 100 s"
    assert history.tell(Tick(), at=122) == [Spawn(ENGINE, 2), Probe(2)]


def test_a_silent_engine_is_degraded_then_recovers_or_is_killed() -> None:
    history = History().serving()
    assert history.tell(Pulse(1, 29), at=40) == []
    assert history.core.state is State.READY
    history.tell(Pulse(1, 30), at=41)
    assert history.core.state is State.DEGRADED
    history.tell(Pulse(1, 60), at=71)
    history.tell(Pulse(1, 0), at=72)
    assert history.core.state is State.READY
    assert history.tell(Pulse(2, 90)) == []  # of another start
    assert history.tell(Pulse(1, 90), at=162) == [Kill(ENGINE)]
    history.tell(Exited(ENGINE, 1, -9), at=163)
    assert history.core.state is State.BACKOFF
    assert history.core.children[ENGINE].reason == "no token for 90 s"
    assert [kind for kind in history.kinds() if kind in ("degraded", "recovered", "broken")] == [
        "degraded",
        "recovered",
        "broken",
    ]


def test_an_engine_that_hangs_once_in_a_while_is_never_given_up() -> None:
    history = History().serving()
    at = 10.0
    for generation in range(1, 8):
        at += POLICY.settled
        assert history.tell(Pulse(generation, 90), at=at) == [Kill(ENGINE)]
        history.tell(Exited(ENGINE, generation, -9), at=at)
        assert history.core.state is State.BACKOFF
        at += 1
        history.tell(Tick(), at=at)
        history.tell(Answered(generation + 1), at=at)


def test_an_engine_that_lost_a_process_is_killed_once() -> None:
    history = History().serving()
    assert history.tell(Broken(ENGINE, 1, "detokenizer")) == [Kill(ENGINE)]
    assert history.tell(Broken(ENGINE, 1, "detokenizer")) == []
    history.tell(Exited(ENGINE, 1, -9))
    assert history.core.children[ENGINE].reason == "detokenizer ended"


def test_restart_is_no_failure_and_revives_what_was_given_up() -> None:
    history = History().serving()
    decided = history.tell(RestartAsked(1, (ENGINE, TRAINER)), at=20)
    assert decided[:2] == [Terminate(ENGINE), Tell({"cmd": "stop"})]
    assert isinstance(decided[2], Answer)
    assert decided[2].ok
    assert history.tell(Exited(TRAINER, 1, 0), at=21) == [Spawn(TRAINER, 2)]
    assert history.tell(Tick(), at=26) == []  # the firm word was for the one before
    assert history.tell(Exited(ENGINE, 1, 0), at=27) == [Spawn(ENGINE, 2), Probe(2)]
    assert history.core.children[ENGINE].failures == 0
    history.tell(Answered(2), at=30)
    for generation in (2, 3, 4):
        history.tell(Exited(TRAINER, generation, 1), at=history.now + 1)
        history.tell(Tick(), at=history.now + 10)
    assert history.state(TRAINER) is State.FATAL
    assert history.tell(RestartAsked(2, (TRAINER,)))[0] == Spawn(TRAINER, 5)


def test_no_restart_of_what_is_not_there_or_on_its_way_down() -> None:
    for history, names, word in [
        (History(trains=False), (TRAINER,), "has no trainer"),
        (History(), (ENGINE,), "WAITING"),
        (History().serving(), ("nurse",), "has no nurse"),
        (History().serving(), (), "neither engine nor trainer"),
        (History(steps=(TARGET,)), (TARGET,), "the target is prepared once"),
        (History().serving(), (ENGINE, "supervisor"), "has no supervisor"),
        (History().serving(), (ENGINE, ENGINE), "twice"),
    ]:
        (answer,) = history.tell(RestartAsked(1, names))
        assert isinstance(answer, Answer)
        assert not answer.ok
        assert word in answer.text


def test_a_hopeless_trainer_is_given_up_and_serving_goes_on() -> None:
    history = History().serving()
    for generation in (1, 2, 3):
        history.tell(Exited(TRAINER, generation, 1, "no memory"))
        history.tell(Tick(), at=history.now + 10)
    assert history.state(TRAINER) is State.FATAL
    assert history.core.state is State.READY
    assert "trainer_fatal" in history.kinds()
    (answer,) = history.tell(TrainAsked(7))
    assert isinstance(answer, Answer)
    assert not answer.ok
    assert "no memory" in answer.text


def test_stop_asks_the_trainer_kindly_then_firmly_then_kills() -> None:
    history = History().serving()
    assert history.tell(StopAsked("Ctrl-C"), at=50) == [Terminate(ENGINE), Tell({"cmd": "stop"})]
    assert history.tell(StopAsked("again")) == []
    assert history.tell(Tick(), at=55) == [Terminate(TRAINER)]
    assert history.tell(Exited(ENGINE, 1, 0), at=56) == []
    assert history.tell(Tick(), at=70) == [Kill(TRAINER)]
    assert history.tell(Exited(TRAINER, 1, -9), at=71) == [Finish(0)]
    assert history.core.state is State.STOPPED


def test_a_second_wish_to_stop_kills() -> None:
    history = History().serving()
    history.tell(StopAsked("Ctrl-C"))
    assert history.tell(KillAsked()) == [Kill(ENGINE), Kill(TRAINER)]
    assert history.notes[-1].text == "stopping at once; a request that was still under way is cut"


def test_the_end_says_what_it_waits_for_and_what_it_cut() -> None:
    history = History().serving()
    history.tell(StopAsked("tide down", requests=2), at=50)
    text = "stopping: tide down; 2 requests under way, 20 s at most, then what still runs is killed"
    assert history.notes[-1].text == text
    history.tell(Tick(), at=55)
    assert history.tell(Tick(), at=70) == [Kill(ENGINE), Kill(TRAINER)]
    assert [note.text for note in history.notes if note.kind == "killed"] == [
        "the engine has not ended within 20 s and is killed; a request that was still under way is cut",
        "the trainer has not ended within 20 s and is killed",
    ]


def test_stop_before_anything_runs_and_while_waiting_to_start_again() -> None:
    assert History().tell(StopAsked("early")) == [Finish(0)]
    history = History(trains=False)
    history.tell(Began())
    history.tell(DraftChosen(None))
    history.tell(Exited(ENGINE, 1, 1))
    assert history.core.state is State.BACKOFF
    assert history.tell(StopAsked("late")) == [Finish(0)]


def test_enough_tokens_start_a_cycle_and_a_published_draft_is_swapped_in() -> None:
    history = History().serving()
    assert history.tell(Totals({"tokens": 999})) == []
    assert history.tell(Totals({"tokens": 1000})) == [Tell({"cmd": "train", "served": 0})]
    assert history.tell(Totals({"tokens": 9000})) == []  # one cycle at a time
    assert history.tell(said("published", version=1, parent=0, cycle=1)) == [Swap(1, 1)]
    history.tell(said("cycle_end", cycle=1, published=1, reason="published"))
    assert history.tell(Tick()) == []  # the next cycle waits until it is known what is served
    assert history.tell(Swapped(1, 1)) == [Serve(1), Tell({"cmd": "train", "served": 1})]
    assert history.core.learning.served == 1
    assert [kind for kind in history.kinds() if kind in ("cycle", "published", "swap")] == [
        "cycle",
        "published",
        "swap",
        "cycle",
    ]


def test_a_draft_published_while_the_engine_is_away_is_swapped_in_when_it_is_back() -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 1000}))
    history.tell(Exited(ENGINE, 1, -9))
    assert history.tell(said("published", version=1, parent=0)) == []
    history.tell(Tick(), at=history.now + 1)
    assert history.tell(Answered(2)) == [Serve(0), Swap(1, 2)]
    assert history.tell(Swapped(1, 2)) == [Serve(1)]


@pytest.mark.parametrize("lost", ["before", "after", "on the way down", "never"])
def test_a_swap_that_ends_the_engine_is_tried_again_and_not_for_ever(lost: str) -> None:
    """Whether the broken connection is heard of before the end or after it, or the engine's last process stays."""
    history = History().serving()
    history.tell(Totals({"tokens": 1000}))
    history.tell(said("published", version=1, parent=0))
    history.tell(said("cycle_end", cycle=1, published=1))
    for engine, wait in ((1, 10), (2, 60), (3, None)):
        assert history.core.learning.serving.under_way == Swap(1, engine)
        answer = Swapped(1, engine, "connection lost")
        if lost == "on the way down":
            assert history.tell(Broken(ENGINE, engine, "scheduler")) == [Kill(ENGINE)]
        if lost in ("before", "on the way down"):
            assert history.tell(answer) == []
        history.tell(Exited(ENGINE, engine, -9))
        if lost == "after":
            assert history.tell(answer) == []
        assert history.kinds().count("swap_refused") == engine
        if wait is None:
            break
        ended = history.now
        history.tell(Tick(), at=ended + 5)
        assert history.tell(Answered(engine + 1)) == [Serve(0)]
        assert history.tell(Tick(), at=ended + wait) == [Swap(1, engine + 1)]
    assert [note for note in history.notes if note.kind == "swap_refused"][-1].text.endswith("the last of 3 attempts")
    serving = history.core.learning.serving
    assert serving.wish is serving.passed is None


@pytest.mark.parametrize("heard", [False, True])
def test_a_swap_cut_short_by_an_end_that_was_asked_for_is_taken_up_again(heard: bool) -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 1000}))
    history.tell(said("published", version=1, parent=0))
    history.tell(RestartAsked(7, (ENGINE,)))
    if heard:
        assert history.tell(Swapped(1, 1, "connection lost")) == []
    history.tell(Exited(ENGINE, 1, 0))
    assert Swap(1, 2) in history.tell(Answered(2))
    history.tell(StopAsked("test"))
    history.tell(Swapped(1, 2, "connection lost"))
    assert "swap_refused" not in history.kinds()


def test_a_kept_version_or_a_way_back_whose_swap_ends_the_engine_is_not_asked_for_again() -> None:
    history = with_a_new_draft()
    history.tell(requests(1, 1.8, 60, first=200))
    history.tell(requests(1, 1.3, 30, first=300))
    assert history.tell(said("pool", version=0, served=1, reason="v0000: gains 0.15")) == [Swap(0, 1)]
    history.tell(Exited(ENGINE, 1, -9))
    history.tell(Tick(), at=history.now + 5)
    assert Swap(0, 2) not in history.tell(Answered(2))

    history = with_a_new_draft()
    assert history.tell(requests(1, 1.1, 30, first=200))[-1] == Swap(0, 1)
    history.tell(Exited(ENGINE, 1, -9))
    history.tell(Tick(), at=history.now + 5)
    assert Swap(0, 2) not in history.tell(Answered(2))
    assert history.tell(requests(1, 1.1, 30, first=300))[-1] == Swap(0, 2)  # the next doubt tries again


def test_a_refused_draft_leaves_the_served_one() -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 1000}))
    history.tell(said("published", version=1, parent=0))
    assert history.tell(Swapped(1, 1, "another vocabulary")) == []
    assert history.core.learning.served == 0
    assert history.notes[-1].kind == "swap_refused"


def test_a_cycle_ends_with_the_trainer_and_the_next_one_counts_from_there() -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 1500}))
    history.tell(Exited(TRAINER, 1, 1))
    assert history.core.learning.doing is Doing.NOTHING
    assert "cycle lost: the trainer ended" in [note.text for note in history.notes]
    history.tell(Tick(), at=history.now + 1)
    assert history.tell(said("ready", generation=2)) == []
    assert history.tell(Totals({"tokens": 2500})) == [Tell({"cmd": "train", "served": 0})]


def test_a_trainer_that_is_silent_at_its_work_is_started_anew() -> None:
    history = History().serving()
    assert history.core.next_deadline() is None  # it has nothing to do, and may be silent
    history.tell(Totals({"tokens": 1000}), at=100)
    assert history.core.next_deadline() == 400
    history.tell(said("alive"), at=399)
    history.tell(Tick(), at=400)
    assert history.state(TRAINER) is State.READY
    assert history.tell(Tick(), at=699) == [Kill(TRAINER)]
    assert history.notes[-1].text == "the trainer does not work: not a step in 300 s (train_hang_timeout)"
    history.tell(Exited(TRAINER, 1, -9), at=700)
    assert history.state(TRAINER) is State.BACKOFF
    assert history.tell(Tick(), at=701) == [Spawn(TRAINER, 2)]
    assert history.state(ENGINE) is State.READY
    history.tell(said("ready", generation=2), at=720)
    assert history.tell(Totals({"tokens": 2500})) == [Tell({"cmd": "train", "served": 0})]
    history.core.learning.slept(1200)
    history.tell(said("alive", generation=2), at=1200)  # late, because nobody listened
    assert history.state(TRAINER) is State.READY
    history.tell(said("cycle_end", generation=2, cycle=1, published=None), at=1300)
    assert history.core.next_deadline() is None


def test_a_failed_cycle_is_over_and_the_next_one_waits_for_more_tokens() -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 1000}))
    assert history.tell(said("error", message="no space left")) == []
    assert history.notes[-1] == Note("trainer_error", "no space left", {"event": "error", "message": "no space left"})
    assert history.tell(Totals({"tokens": 1900})) == []
    assert history.tell(Totals({"tokens": 2000})) == [Tell({"cmd": "train", "served": 0})]


def test_on_a_shared_gpu_training_takes_its_part_of_the_time() -> None:
    history = History().serving()
    history.core.learning.trigger.rules = TriggerRules(1000, most_share=0.25)
    assert history.tell(Totals({"tokens": 1000}), at=100) == [Tell({"cmd": "train", "served": 0})]
    assert history.tell(said("error", message="no space left"), at=110) == []
    assert history.tell(Totals({"tokens": 9000}), at=139) == []
    assert history.tell(Totals({"tokens": 9000}), at=140) == [Tell({"cmd": "train", "served": 0})]


def test_train_now() -> None:
    history = History().serving()
    assert history.tell(TrainAsked(1)) == [
        Tell({"cmd": "train", "served": 0}),
        Answer(1, True, "a training cycle has begun"),
    ]
    assert history.tell(TrainAsked(2)) == [Answer(2, False, "a training cycle is already running")]


def test_pause_cancels_the_cycle_and_lets_none_begin() -> None:
    history = History().serving()
    assert history.tell(Totals({"tokens": 1000})) == [Tell({"cmd": "train", "served": 0})]
    assert history.tell(PauseAsked(1, True)) == [Tell({"cmd": "cancel"}), Answer(1, True, "training paused")]
    history.tell(said("cycle_end", reason="cancelled"))
    assert history.tell(Totals({"tokens": 9000})) == []
    (refused,) = history.tell(TrainAsked(2))
    assert isinstance(refused, Answer)
    assert "tide train resume" in refused.text
    assert history.tell(PauseAsked(3, True)) == [Answer(3, True, "training is paused already")]
    assert history.tell(PauseAsked(4, False)) == [
        Answer(4, True, "training resumed"),
        Tell({"cmd": "train", "served": 0}),
    ]
    assert [kind for kind in history.kinds() if kind in ("pause", "resume")] == ["pause", "resume"]


@pytest.mark.parametrize("early", [False, True], ids=["after its end", "before its end"])
def test_resume_goes_on_with_the_cycle_that_the_pause_has_cut_short(early: bool) -> None:
    """Without one more token; also where it follows so soon that the trainer has not let go yet."""
    history = History().serving()
    history.tell(Totals({"tokens": 1000}))
    history.tell(PauseAsked(1, True))
    end, resume = said("cycle_end", cycle=1, published=None, reason="cancelled"), PauseAsked(2, False)
    resumed = [action for message in ([resume, end] if early else [end, resume]) for action in history.tell(message)]
    assert resumed == [Answer(2, True, "training resumed"), Tell({"cmd": "train", "served": 0})]
    assert history.notes[-1].text == "training: going on with the cycle that was cut short; 0 new tokens stored since"
    history.tell(said("cycle_end", cycle=2, published=None, reason="not above the margin"))
    assert history.tell(Totals({"tokens": 1999})) == []  # once


def test_resume_tries_kept_versions_again_where_the_pause_has_cut_that_short() -> None:
    history = History().serving()
    history.tell(Totals({"tokens": 150}))
    history.tell(requests(0, 1.8, 60))
    choose = Tell({"cmd": "choose", "served": 0})
    assert history.tell(requests(0, 1.3, 30, first=100)) == [choose]
    history.tell(PauseAsked(1, True))
    assert history.tell(said("pool", version=None, served=0, reason="cancelled")) == []
    assert choose in history.tell(PauseAsked(2, False))


def test_a_draft_that_falls_short_is_taken_back_where_the_one_before_is_better_on_the_newest_samples() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    assert "doubt" in history.kinds()
    assert "rollback" not in history.kinds()
    marked, swap = history.tell(said("pool", version=0, served=1, reason="v0000: gains 0.3"))
    assert isinstance(marked, MarkBad)
    assert (marked.version, swap) == (1, Swap(0, 1))
    assert history.notes[-1].text == "v0001 is taken back, v0000 returns: v0000: gains 0.3"
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    assert history.tell(requests(0, 1.2, 90, first=300)) == []


def test_traffic_that_changes_with_the_swap_takes_no_draft_back() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    assert history.tell(said("pool", version=None, served=1, reason="none of 1 kept versions passed the gate")) == []
    assert history.notes[-1].kind == "trusted"
    assert "v0001 stays: on the newest samples v0000 is no better" in history.notes[-1].text
    assert history.tell(requests(1, 1.2, 30, first=300)) == []


def test_a_version_before_that_cannot_be_walked_is_no_way_back() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    none = said("pool", version=None, served=1, reason="none of 0 kept versions passed the gate", walked=[])
    assert history.tell(none) == []
    assert history.notes[-1].text == "v0001 stays: v0000 cannot be walked, nor served in its place"


def test_a_comparison_on_too_few_samples_says_nothing() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    walked = [{"version": 0, "lower_bound": None, "samples": 3}]
    assert history.tell(said("pool", version=None, served=1, reason="none passed", walked=walked)) == []
    assert "v0001 stays for now and is watched anew" in history.notes[-1].text


def test_a_draft_in_doubt_waits_for_the_cycle_that_runs() -> None:
    history = with_a_new_draft()
    assert history.tell(Totals({"tokens": 2000})) == [Tell({"cmd": "train", "served": 1})]
    assert history.tell(requests(1, 1.2, 30, first=200)) == []
    assert history.tell(said("cycle_end", cycle=2, published=None)) == [COMPARE]


@pytest.mark.parametrize("dies", [False, True], ids=["an error", "the trainer's end"])
def test_a_comparison_that_fails_takes_no_draft_back_unless_it_falls_short_again(dies: bool) -> None:
    history = with_a_new_draft()

    def fails(generation: int) -> list[Action]:
        if not dies:
            return history.tell(said("error", message="the draft file v0007/manifest.json is damaged"))
        actions = history.tell(Exited(TRAINER, generation, 1))
        history.tell(Tick(), at=history.now + 10)
        history.tell(said("ready", generation=generation + 1))
        return actions

    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    assert fails(1) == []
    assert "v0001 stays for now and is watched anew" in next(n.text for n in history.notes if n.kind == "pool")
    assert history.tell(requests(1, 1.2, 5, first=300)) == []
    assert history.tell(requests(1, 1.2, 30, first=400)) == [COMPARE]
    marked, swap = fails(2)
    assert isinstance(marked, MarkBad)
    assert swap == Swap(0, 1)
    assert "for the second time" in marked.reason
    assert history.tell(Swapped(0, 1)) == [Serve(0)]


def test_a_draft_that_could_not_be_compared_can_still_earn_its_trust() -> None:
    history = with_a_new_draft()
    history.tell(requests(1, 1.2, 30, first=200))
    history.tell(said("error", message="no space left"))
    assert history.tell(requests(1, 1.8, 60, first=300)) == []
    assert history.kinds()[-1] == "trusted"
    assert history.core.learning.served == 1


def test_a_draft_in_doubt_waits_for_a_trainer_that_is_starting() -> None:
    history = with_a_new_draft()
    history.tell(Exited(TRAINER, 1, 1))
    assert history.tell(requests(1, 1.2, 30, first=200)) == []
    assert history.tell(Tick(), at=history.now + 1) == [Spawn(TRAINER, 2)]
    assert history.tell(said("ready", generation=2)) == [COMPARE]
    assert "rollback" not in history.kinds()


def test_a_draft_in_doubt_goes_where_nobody_will_compare() -> None:
    history = with_a_new_draft()
    for generation in (1, 2, 3):
        history.tell(Exited(TRAINER, generation, 1))
        history.tell(Tick(), at=history.now + 60)
    assert history.state(TRAINER) is State.FATAL
    assert Swap(0, 1) in history.tell(requests(1, 1.2, 30, first=200))
    assert "rollback" in history.kinds()


@pytest.mark.parametrize("during", [False, True], ids=["before it", "during it"])
def test_a_pause_lets_a_comparison_end(during: bool) -> None:
    history = with_a_new_draft()
    paused = [Answer(7, True, "training paused")]
    if not during:
        assert history.tell(PauseAsked(7, True)) == paused
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    if during:
        assert history.tell(PauseAsked(7, True)) == paused
    assert history.tell(said("pool", version=None, served=1, reason="none of 1 kept versions passed the gate")) == []
    assert history.kinds()[-1] == "trusted"
    assert history.tell(Totals({"tokens": 9000})) == []


def test_where_the_way_back_is_refused_kept_versions_are_tried_and_it_is_watched_on() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.1, 30, first=200))[-1] == Swap(0, 1)
    choose = Tell({"cmd": "choose", "served": 1})
    assert history.tell(Swapped(0, 1, "damaged")) == [choose]
    assert history.kinds()[-1] == "swap_refused"
    assert history.tell(said("pool", version=None, served=1, reason="none passed")) == []
    marked, swap = history.tell(requests(1, 1.1, 30, first=300))
    assert (type(marked), swap) == (MarkBad, Swap(0, 1))
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    assert history.core.learning.performance.watch is None


def test_a_draft_in_doubt_that_the_user_replaces_is_in_doubt_no_more() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.2, 30, first=200)) == [COMPARE]
    history.tell(UseAsked(7, 0))
    history.tell(Swapped(0, 1))
    assert history.tell(said("pool", version=0, served=1, reason="v0000: gains 0.3")) == []
    assert "rollback" not in history.kinds()


def test_a_draft_that_is_seldom_right_is_taken_back_at_once() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(0, 1.2, 30, first=100)) == []  # begun before the swap
    marked, swap = history.tell(requests(1, 1.1, 30, first=200))
    assert isinstance(marked, MarkBad)
    assert (marked.version, swap) == (1, Swap(0, 1))
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    assert history.tell(requests(0, 1.2, 90, first=300)) == []  # the one that has come back is not on trial
    note = next(note for note in history.notes if note.kind == "rollback")
    assert "v0001 is taken back, v0000 returns" in note.text
    assert note.data["watch"]["forecast"] == 1.8


def test_acceptance_by_domain_is_kept_and_told_of_the_version_that_leaves() -> None:
    history = History().serving()
    told = [ServedRequest(n, 0, 30 + n % 2 * 30, 20, ("code", "chat")[n % 2]) for n in range(1, 9)]
    history.tell(Observed((*told, ServedRequest(9, 0, 60, 20))))
    expected = {
        "chat": {"acceptance_length": 3.0, "requests": 4},
        "code": {"acceptance_length": 1.5, "requests": 4},
    }
    assert history.core.learning.performance.domains == expected
    history.tell(UseAsked(1, 5))
    history.tell(Swapped(5, 1))
    assert next(note for note in history.notes if note.kind == "swap").data["domains"] == expected
    assert history.core.learning.performance.domains == {}
    many = [ServedRequest(n, 5, 30, 20, f"client {n}") for n in range(10, 210)]
    history.tell(Observed((ServedRequest(300, 5, 30, 20, "code"), *many)))
    kept = history.core.learning.performance.domains
    assert len(kept) == 32
    assert "client 209" in kept
    assert "code" not in kept


def test_a_draft_that_keeps_its_promise_is_trusted() -> None:
    history = with_a_new_draft()
    assert history.tell(requests(1, 1.8, 60, first=200)) == []
    assert history.core.learning.served == 1
    assert "trusted" in history.kinds()


def test_a_forced_draft_is_watched_against_what_was_seen_before() -> None:
    history = History().serving()
    history.tell(requests(0, 1.5, 20))
    history.tell(UseAsked(1, 5))
    history.tell(Swapped(5, 1))
    assert history.tell(requests(5, 1.0, 40, first=100))[-1] == Swap(0, 1)


def test_a_fall_of_acceptance_starts_a_cycle_with_few_tokens() -> None:
    history = History().serving()
    assert history.tell(Totals({"tokens": 150})) == []
    assert history.tell(requests(0, 1.8, 60)) == []
    # first whether a version that was kept suits the new traffic, then a cycle
    assert history.tell(requests(0, 1.3, 30, first=100)) == [Tell({"cmd": "choose", "served": 0})]
    nothing = said("pool", version=None, served=0, reason="none passed")
    assert history.tell(nothing) == [Tell({"cmd": "train", "served": 0})]
    assert {"drift", "pool"} <= set(history.kinds())


def test_without_the_pool_a_fall_of_acceptance_trains_at_once() -> None:
    history = History(pool=False).serving()
    history.tell(Totals({"tokens": 150}))
    history.tell(requests(0, 1.8, 60))
    assert history.tell(requests(0, 1.3, 30, first=100)) == [Tell({"cmd": "train", "served": 0})]


def test_a_kept_version_that_suits_the_new_traffic_is_served_without_training() -> None:
    history = with_a_new_draft()
    history.tell(requests(1, 1.8, 60, first=200))
    choose = Tell({"cmd": "choose", "served": 1})
    assert history.tell(requests(1, 1.3, 30, first=300)) == [choose]
    assert history.tell(said("pool", version=0, served=1, reason="v0000: gains 0.3")) == [Swap(0, 1)]
    assert history.tell(Swapped(0, 1)) == [Serve(0)]
    assert history.tell(Totals({"tokens": 1500})) == []


def test_a_kept_version_that_the_engine_refuses_answers_no_drift() -> None:
    history = with_a_new_draft()
    history.tell(Totals({"tokens": 1500}))
    history.tell(requests(1, 1.8, 60, first=200))
    assert history.core.versions_in_use() == {1}
    assert history.tell(requests(1, 1.3, 30, first=300)) == [Tell({"cmd": "choose", "served": 1})]
    assert history.core.versions_in_use() is None  # any may be the next
    history.tell(said("pool", version=5, served=1, reason="v0005: gains 0.3"))
    assert history.core.versions_in_use() == {1, 5}
    assert history.tell(Swapped(5, 1, "it is gone")) == [Tell({"cmd": "train", "served": 1})]


FIGURES = {"version": 0, "candidate_al": 1.45, "served_al": 1.3, "lower_bound": 0.1}


def from_the_pool() -> History:
    """After a shift of the traffic the pool has found v0000 to gain 0.15 over v0001, which had 1.8 before."""
    history = with_a_new_draft()
    history.tell(requests(1, 1.8, 60, first=200))
    assert history.tell(requests(1, 1.3, 30, first=300)) == [Tell({"cmd": "choose", "served": 1})]
    chosen = said("pool", version=0, served=1, reason="v0000: gains 0.15", walked=[FIGURES])
    assert history.tell(chosen) == [Swap(0, 1)]
    history.tell(Swapped(0, 1))
    return history


def test_a_version_from_the_pool_is_measured_by_the_traffic_it_was_chosen_for() -> None:
    history = from_the_pool()
    watch = history.core.learning.performance.watch
    assert watch is not None
    assert (watch.forecast, watch.expected_before) == (1.45, 1.3)
    assert watch.before.length < 1.5  # nothing of the time before the shift
    assert history.tell(requests(0, 1.45, 12, first=400)) == []  # a look or two
    assert history.core.learning.performance.watch is not None
    assert history.tell(requests(0, 1.45, 40, first=500)) == []
    assert {"doubt", "rollback"}.isdisjoint(history.kinds())
    assert history.kinds()[-1] == "trusted"


def test_a_version_from_the_pool_that_does_not_keep_its_promise_is_compared_or_goes() -> None:
    assert from_the_pool().tell(requests(0, 1.18, 40, first=400)) == [
        Tell({"cmd": "choose", "served": 0, "among": [1]})
    ]
    marked, swap = from_the_pool().tell(requests(0, 1.0, 40, first=400))
    assert (type(marked), swap) == (MarkBad, Swap(1, 1))


def test_a_vocabulary_that_covers_too_little_is_told_once_and_each_change_of_it() -> None:
    history = History().serving()

    def covers(served: float, changed: int = 0) -> None:
        values = {"version": 3, "candidate": 0.99, "wanted": 0.97, "changed": changed, "tokens": 1000}
        history.tell(said("coverage", cycle=1, served=served, **values))

    for served in (0.98, 0.86, 0.85, 0.99):
        covers(served)
    told = [note.text for note in history.notes if note.kind == "coverage"]
    assert told == ["the vocabulary of v0003 covers 86.0 % of 1,000 recent tokens, less than 97.0 %"]
    covers(0.85, changed=300)
    covers(0.85, changed=20)
    told = [note.text for note in history.notes if note.kind == "coverage"]
    assert told[1].endswith("less than 97.0 %; training with 300 others: 99.0 %")
    assert len(told) == 3
    assert history.core.learning.coverage["served"] == 0.85


def test_cycles_that_bring_nothing_come_more_seldom() -> None:
    history = History().serving()
    starts, total = [], 0
    for _ in range(40):
        total += 500
        if history.tell(Totals({"tokens": total})):
            starts.append(total)
            cycle = len(starts)
            history.tell(said("gate", cycle=cycle, passed=False, lower_bound=-0.1))
            history.tell(said("cycle_end", cycle=cycle, published=None))
    assert starts == [1000, 3000, 6000, 10000, 15000]


def test_drafts_that_pass_the_gate_and_fail_live_are_trained_ever_less_often() -> None:
    """Each is taken back, which ends the matter until there are more tokens for the next one than for this one."""
    history = History().serving()
    history.tell(requests(0, 1.5, 20))
    starts, total, version = [], 0, 0
    for _ in range(60):
        total += 500
        if history.tell(Totals({"tokens": total})):
            starts.append(total)
            version += 1
            history.tell(said("gate", cycle=version, passed=True, lower_bound=0.2, candidate_al=1.8, served_al=1.5))
            assert history.tell(said("published", cycle=version, version=version, parent=0)) == [Swap(version, 1)]
            history.tell(said("cycle_end", cycle=version, published=version))
            history.tell(Swapped(version, 1))
            assert history.tell(requests(version, 1.0, 30, first=1000 * version))[-1] == Swap(0, 1)
            history.tell(Swapped(0, 1))
    assert starts == [1000, 3000, 6000, 10000, 15000, 21000, 28000]


def test_a_version_of_the_users_that_is_taken_back_makes_no_cycle_later() -> None:
    history = History().serving()
    history.tell(requests(0, 1.5, 20))
    history.tell(UseAsked(1, 5))
    history.tell(Swapped(5, 1))
    assert history.tell(requests(5, 1.0, 40, first=100))[-1] == Swap(0, 1)
    assert history.core.learning.tokens_needed == 1000


def test_a_cycle_without_a_verdict_makes_the_next_one_no_later() -> None:
    history = History().serving()
    few = {"passed": False, "lower_bound": None, "reason": "2 held-out samples, at least 4 are needed"}
    for cycle, total in enumerate((1000, 2000, 3000), 1):
        assert history.tell(Totals({"tokens": total})) == [Tell({"cmd": "train", "served": 0})]
        history.tell(said("gate", cycle=cycle, **few))
        history.tell(said("cycle_end", cycle=cycle, published=None))
    history.tell(Totals({"tokens": 4000}))
    history.tell(said("gate", cycle=4, passed=False, lower_bound=-0.1))
    history.tell(said("cycle_end", cycle=4, published=None))
    assert history.core.learning.tokens_needed == 2000
    # a trainer that has lost its count: the verdict was on another cycle 4
    assert history.tell(Totals({"tokens": 6000})) == [Tell({"cmd": "train", "served": 0})]
    history.tell(said("cycle_end", cycle=4, published=None, reason="there is no sample to train on"))
    assert history.core.learning.tokens_needed == 2000


def test_a_cycle_waits_for_samples_to_judge_its_draft_by() -> None:
    history = History().serving()
    history.core.learning.trigger.rules = TriggerRules(1000, held_out=4)
    assert history.tell(Totals({"tokens": 5000}, held_out=3)) == []
    assert history.tell(Totals({"tokens": 5000}, held_out=4)) == [Tell({"cmd": "train", "served": 0})]


def test_use_answers_after_the_engine() -> None:
    history = History().serving()
    assert history.tell(UseAsked(5, 2)) == [Swap(2, 1)]
    assert history.tell(UseAsked(6, 3)) == [Answer(6, False, "another swap is under way; try again in a moment")]
    assert history.tell(Swapped(2, 1)) == [Serve(2), Answer(5, True, "v0002 is served")]
    history.tell(UseAsked(7, 1))
    why = "v0001 was refused: the engine ended during the swap"
    assert history.tell(Exited(ENGINE, 1, -9)) == [Answer(7, False, why)]


def test_an_emptied_spool_counts_from_nothing() -> None:
    history = History(trained_at=5000).serving()
    history.tell(Totals({"tokens": 5200}))
    assert history.core.learning.new_tokens == 200
    history.tell(Totals({"tokens": 300}))
    assert history.core.learning.new_tokens == 300


def test_an_event_nobody_knows_is_noted_and_changes_nothing() -> None:
    history = History().serving()
    assert history.tell(said("dance")) == []
    assert history.notes[-1].kind == "trainer_error"


@pytest.mark.parametrize(("failures", "delay"), [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (10**6, 60.0)])
def test_back_off_doubles_up_to_a_bound(failures: int, delay: float) -> None:
    assert POLICY.delay(failures) == delay


MESSAGES = st.one_of(
    st.just(Tick()),
    st.builds(DraftChosen, st.integers(0, 3)),
    st.builds(Exited, st.sampled_from([TARGET, ENGINE, TRAINER]), st.integers(1, 5), st.sampled_from([0, 1, -9])),
    st.builds(Answered, st.integers(1, 5)),
    st.builds(Totals, st.fixed_dictionaries({"tokens": st.integers(0, 10**6)})),
    st.builds(
        said,
        st.sampled_from(["ready", "progress", "alive", "gate", "published", "cycle_end", "pool", "error"]),
        st.integers(1, 5),
        version=st.integers(0, 9),
        parent=st.integers(0, 9),
        served=st.integers(0, 9),
    ),
    st.builds(requests, st.integers(0, 3), st.sampled_from([1.0, 1.5, 2.0]), st.integers(1, 60)),
    st.builds(Swapped, st.integers(0, 9), st.integers(1, 5), st.sampled_from([None, "no"])),
    st.builds(speculates, st.none() | st.integers(0, 3)),
    st.builds(TrainAsked, st.integers(100, 199)),
    st.builds(PauseAsked, st.integers(400, 499), st.booleans()),
    st.builds(Pulse, st.integers(1, 5), st.sampled_from([0.0, 30.0, 90.0])),
    st.builds(Broken, st.just(ENGINE), st.integers(1, 5), st.just("scheduler")),
    st.builds(RestartAsked, st.integers(300, 399), st.sampled_from([(ENGINE,), (TRAINER,), (ENGINE, TRAINER)])),
    st.builds(UseAsked, st.integers(200, 299), st.integers(0, 9)),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 50), MESSAGES), max_size=60), st.booleans())
def test_whatever_happens_a_stop_ends_everything(events: list[tuple[float, Message]], kill: bool) -> None:
    """Children exist exactly between Spawn and Exited; after a stop each of them is ended, and Finish comes once."""
    history = History(steps=(TARGET,))
    alive: dict[str, int] = {}

    def tell(message: Message, after: float) -> list[Action]:
        if isinstance(message, Exited):
            if alive.get(message.child) != message.generation:
                return []
            del alive[message.child]
        actions = history.tell(message, at=history.now + after)
        for action in actions:
            if isinstance(action, Spawn):
                assert action.child not in alive
                assert not history.core.stopping
                alive[action.child] = action.generation
            if isinstance(action, Swap):
                assert history.core.state is State.READY
        return actions

    tell(Began(), 0)
    for after, message in events:
        if isinstance(message, DraftChosen) and (history.core.state is not State.PREPARING or alive):
            continue  # is only asked for once
        tell(message, after)
    decided = tell(KillAsked() if kill else StopAsked("test"), 0)
    while alive:
        decided += tell(Tick(), 25)
        child, generation = next(iter(alive.items()))
        decided += tell(Exited(child, generation, -9), 0)
    assert history.core.finished
    assert sum(isinstance(action, Finish) for action in decided) <= 1
    assert history.tell(Tick()) == []


def test_tokens_trained_on_before_a_restart_do_not_count_again() -> None:
    learned = learning(trained_at=43)
    assert learned.new_tokens == 0  # before the spool has been looked at
    learned.totals = {"tokens": 431}
    assert learned.new_tokens == 388


def test_a_capture_that_stops_is_said_once() -> None:
    history = History().serving()
    for failure in (None, "the disk is gone", "the disk is gone", None, "again"):
        assert history.tell(CaptureLooked(failure)) == []
    assert [note.text for note in history.notes if note.kind == "capture_stopped"] == [
        "capture has stopped, serving goes on: the disk is gone",
        "capture has stopped, serving goes on: again",
    ]
    assert history.core.state is State.READY


def looks(history: History, start: float, seconds: float, **state: Any) -> list[str]:
    """The engine's report every ten seconds; texts of the notes of kind `speculation`."""
    before = len(history.notes)
    for second in range(0, int(seconds) + 1, 10):
        history.tell(speculates(0, **state), at=start + second)
    return [note.text for note in history.notes[before:] if note.kind == "speculation"]


def test_a_decision_about_speculation_is_told_when_it_has_held() -> None:
    history = History().serving()
    assert looks(history, 100, 60) == ["speculation with 3 draft steps: because"]
    assert looks(history, 200, 60, steps=2) == []  # the same decision, in another size
    assert looks(history, 300, 20, steps=0) == []  # not for long
    assert looks(history, 330, 60) == []
    assert looks(history, 400, 30, steps=0, reason="it costs") == ["plain decoding: it costs"]
    assert looks(history, 500, 60, steps=3, measuring=True) == []
    assert history.core.speculation.state["steps"] == 3


def test_an_engine_that_is_gone_tells_nothing_of_speculation() -> None:
    history = History().serving()
    history.tell(Exited(ENGINE, 1, -9), at=100)
    assert looks(history, 100, 60) == []
    assert history.core.speculation.state is None
