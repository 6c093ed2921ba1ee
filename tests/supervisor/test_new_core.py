"""What an appliance that begins takes over from the journal of those before it."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from histories import History, requests, said
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import publish, scripted_settings

from tide_cli.adaptation.lengths import Lengths
from tide_cli.adaptation.trigger import TriggerRules
from tide_cli.drafts.store import DraftStore
from tide_cli.supervisor import new_core as under_test
from tide_cli.supervisor.appliance import check_settings
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.journal import Journal, read_events
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.messages import (
    ENGINE,
    TRAINER,
    Answered,
    Began,
    DraftChosen,
    Exited,
    MarkBad,
    Message,
    Note,
    PauseAsked,
    Swap,
    Swapped,
    Totals,
    TrainAsked,
    UseAsked,
)
from tide_cli.supervisor.new_core import new_core, remembered_trigger
from tide_cli.supervisor.run import Supervisor
from tide_cli.supervisor.specs import Workshop
from tide_cli.supervisor.unserved import find_unserved

MONOTONIC = 5000.0  # of a machine that has run for longer than any cycle_every here


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    settings = scripted_settings(tmp_path, 31_996, cycle_every=600.0, cycle_tokens=1000)
    settings.paths.state.mkdir(exist_ok=True)
    found = check_settings(settings)
    return Workshop(settings, found.plan, found.target)


def up(workshop: Workshop, version: int) -> Core:
    """Engine and trainer READY."""
    core = new_core(workshop)
    for message in (Began(), DraftChosen(version), Answered(1), said("ready")):
        core.handle(message, MONOTONIC)
    return core


def record(workshop: Workshop, core: Core, *messages: object) -> None:
    """Have the core decide, and the journal keep its notes."""
    journal = Journal(workshop.paths.database)
    for message in messages:
        for action in core.handle(message, MONOTONIC):
            if isinstance(action, Note):
                journal.note(action.kind, action.text, action.data)
    journal.close()


def swapped_in(workshop: Workshop) -> Core:
    """v0001 is served, after v0000 was for 20 requests."""
    core = up(workshop, 0)
    record(workshop, core, requests(0, 1.5, 20), UseAsked(1, 1), Swapped(1, 1))
    assert core.learning.served == 1
    return core


def trains(core: Core, tokens: int, now: float) -> bool:
    actions = core.handle(Totals({"tokens": tokens}, held_out=4), now)
    return any(isinstance(action, Note) and action.kind == "cycle" for action in actions)


@pytest.mark.parametrize("ago", [None, 400.0, 90_000.0], ids=["none before", "before", "long before"])
def test_time_without_a_cycle_counts_from_the_last_one_or_the_start(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, ago: float | None
) -> None:
    wall, tokens = 0.0, 300
    if ago is not None:
        record(workshop, up(workshop, 0), Totals({"tokens": 1000}, held_out=4))
        wall, tokens = read_events(workshop.paths.database, kind="cycle")[0]["time"] + ago, 1300
    clocks = SimpleNamespace(monotonic=lambda: MONOTONIC, time=lambda: wall)
    monkeypatch.setattr(under_test, "time", clocks)
    core = up(workshop, 0)
    due = MONOTONIC + max(0.0, 600 - (ago or 0.0))
    if due > MONOTONIC:
        assert not trains(core, tokens, due - 1)
    assert trains(core, tokens, due)


def test_a_draft_on_trial_is_watched_on_by_the_next_appliance(workshop: Workshop) -> None:
    first = swapped_in(workshop)
    record(workshop, first, requests(1, 1.2, 5, first=100))
    before = first.learning.performance.watch
    assert before is not None
    core = up(workshop, 1)
    assert core.learning.performance.watch == replace(before, live=Lengths(), looked_at=0.0)
    assert core.handle(requests(1, 1.0, 30, first=200), MONOTONIC)[-1] == Swap(0, 1)


def test_a_trial_that_is_over_or_of_another_version_is_not_taken_up(workshop: Workshop) -> None:
    first = swapped_in(workshop)
    assert up(workshop, 0).learning.performance.watch is None  # `tide drafts use 0` without an appliance
    record(workshop, first, requests(1, 1.5, 700, first=100))
    assert first.learning.performance.watch is None
    assert up(workshop, 1).learning.performance.watch is None


def test_a_draft_that_was_taken_back_and_never_left_is_on_trial_again(workshop: Workshop) -> None:
    """The engine has refused the version before, or the end has come between."""
    first = swapped_in(workshop)
    record(workshop, first, requests(1, 1.0, 30, first=100))
    actions = up(workshop, 1).handle(requests(1, 1.0, 30, first=200), MONOTONIC)
    assert MarkBad in map(type, actions)


def test_a_version_that_has_come_back_is_not_on_trial(workshop: Workshop) -> None:
    first = swapped_in(workshop)
    record(workshop, first, requests(1, 1.0, 30, first=100), Swapped(0, 1))
    assert first.learning.served == 0
    assert up(workshop, 0).learning.performance.watch is None


def test_a_journal_of_before_has_no_trials(workshop: Workshop) -> None:
    journal = Journal(workshop.paths.database)
    journal.note("swap", "v0001 is served", {"version": 1, "before": 0})
    journal.close()
    assert up(workshop, 1).learning.performance.watch is None


def test_a_journal_of_another_version_of_the_program_stops_no_start(workshop: Workshop) -> None:
    journal = Journal(workshop.paths.database)
    state = {"trained_at": 700, "barren": 2, "moon": "full"}
    journal.note("cycle", "", {"tokens_total": 900, "decided_from": {"state": state}})
    watch = {"version": 1, "previous": 0, "forecast": 1.8, "expected_before": None, "moon": "full"}
    journal.note(
        "swap", "", {"version": 1, "before": 0, "watch": {**watch, "live": {"moon": 1}, "before": {"count": 3}}}
    )
    core = up(workshop, 1)
    assert (core.learning.trigger.state.trained_at, core.learning.trigger.state.barren) == (900, 2)
    found = core.learning.performance.watch
    assert found is not None
    assert (found.forecast, found.before) == (1.8, Lengths(count=3))

    # what does not fit is as good as none
    for kind in ("published", "rollback", "gate"):
        journal.note(kind, "", {"version": [1], "lower_bound": "low", "gain": {}})
    journal.note("cycle", "", {"tokens_total": 1000, "decided_from": {"state": {"barren": "many"}}})
    for kind in ("published", "rollback"):
        journal.note(kind, "", {})
    journal.note("swap", "", {"version": 1, "before": 0, "watch": {"version": 1}})
    core = up(workshop, 1)
    assert (core.learning.trigger.state.trained_at, core.learning.trigger.state.barren) == (1000, 0)
    assert core.learning.performance.watch is None
    journal.note("cycle", "", {"decided_from": "the stars"})
    journal.close()
    assert up(workshop, 1).learning.trigger.state.trained_at == 0


# --- the trigger

VERSIONS = st.integers(0, 3)
NEWS = st.one_of(
    st.builds(Totals, st.fixed_dictionaries({"tokens": st.integers(0, 9000)})),
    st.builds(said, st.just("gate"), lower_bound=st.none() | st.just(-0.1)),
    st.builds(said, st.just("published"), version=VERSIONS, parent=VERSIONS),
    st.builds(
        said, st.just("cycle_end"), published=st.none() | VERSIONS, reason=st.sampled_from(["done", "cancelled"])
    ),
    st.builds(said, st.sampled_from(["error", "dance"])),
    st.builds(said, st.just("pool"), version=st.none() | VERSIONS, served=VERSIONS),
    st.builds(requests, VERSIONS, st.sampled_from([1.0, 1.3, 1.8]), st.integers(5, 60)),
    st.builds(Swapped, VERSIONS, st.just(1), st.sampled_from([None, "no"])),
    st.builds(UseAsked, st.integers(200, 299), VERSIONS),
    st.builds(TrainAsked, st.integers(100, 199)),
    st.builds(PauseAsked, st.integers(400, 499), st.booleans()),
    st.just(Exited(TRAINER, 1, 1)),
)


def drift_left(events: list[dict], learning: Learning) -> str | None:
    """The drift that no cycle has answered: a cycle that its appliance has cut short has not."""
    left, begun_on, judged = None, None, False
    for event in events:
        kind, data = event["kind"], event["data"]
        if kind == "drift":
            left = event["text"]
        elif kind == "swap" and data["pool"]:
            left = None
        elif kind == "cycle":
            goes_on = data["decided_from"]["state"]["cut"] and data["decided_from"]["state"]["early"]
            left, begun_on, judged = None, left or (begun_on if goes_on else None), False
        judged |= kind == "gate"
    trigger = learning.trigger
    if left is None and ((trigger._running and not judged) or (trigger.state.cut and not learning.paused)):
        return begun_on
    return left


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 50), NEWS), max_size=40))
def test_the_trigger_goes_on_where_the_one_before_has_ended(messages: list[tuple[float, Message]]) -> None:
    """On another clock: the machine may have been started anew in between."""
    history, events = History().serving(), list[dict]()
    rules = history.core.learning.trigger.rules = TriggerRules(1000, least_tokens=100, most_share=0.5)

    def note() -> None:
        for one in history.notes[len(events) :]:
            row = {"id": len(events) + 1, "time": 1e9 + history.now, "kind": one.kind, "text": one.text}
            events.append({**row, "data": json.loads(json.dumps(dict(one.data)))})

    def read(path: Path, *, after: int = 0, newest: int | None = None, kind: str | None = None) -> list[dict]:
        found = [event for event in events if event["id"] > after and event["kind"] == kind]
        return found if newest is None else found[-newest:]

    note()
    for after, message in messages:
        history.tell(message, at=history.now + after)
        note()
    learning = history.core.learning
    clocks = SimpleNamespace(monotonic=lambda: MONOTONIC, time=lambda: 1e9 + history.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(under_test, "time", clocks)
        patch.setattr(under_test, "read_events", read)
        patch.setattr(under_test, "was_paused", lambda path: learning.paused)
        trigger = remembered_trigger(rules, Path())
    again = trigger.state
    trigger.heard("trainer_error", "", {"event": "error"}, MONOTONIC + 100)  # of whatever else the trainer fails at
    assert trigger.state == again
    live, moved = learning.trigger.state, MONOTONIC - history.now
    began = live.began + moved if any(event["kind"] == "cycle" for event in events) else MONOTONIC
    rests = None if live.rests_until is None or learning.trigger._running else live.rests_until + moved
    expected = replace(
        live,
        drift=drift_left(events, learning),
        began=again.began,
        rests_until=again.rests_until,
        cut=live.cut and learning.paused,
    )
    assert again == expected
    assert again.began == pytest.approx(began)
    assert again.rests_until == pytest.approx(rests)


@pytest.mark.parametrize(("gain", "needed"), [(-0.05, 3000), (0.05, 1000)], ids=["barren", "undecided"])
def test_what_cycles_could_not_bring_is_known_to_the_next_appliance(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, gain: float, needed: int
) -> None:
    monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=lambda: MONOTONIC, time=time.time))
    core = up(workshop, 0)
    for total in (1000, 3000):
        verdict = said("gate", passed=False, gain=gain, lower_bound=-0.1)
        record(workshop, core, Totals({"tokens": total}, held_out=4), verdict)
        record(workshop, core, said("cycle_end", published=None, reason="not above the margin"))
    assert not trains(up(workshop, 0), 3000 + needed - 1, MONOTONIC)
    assert trains(up(workshop, 0), 3000 + needed, MONOTONIC)


def test_a_drift_that_no_cycle_has_answered_is_known_to_the_next_appliance(workshop: Workshop) -> None:
    core = up(workshop, 0)
    record(workshop, core, requests(0, 1.8, 400), requests(0, 1.3, 400, first=1000))
    assert read_events(workshop.paths.database, kind="drift")
    after = up(workshop, 0)
    actions = after.handle(Totals({"tokens": 300}, held_out=4), MONOTONIC)
    assert [action.command["cmd"] for action in actions] == ["choose"]  # kept versions first
    (_, cycle) = after.handle(said("pool", version=None, served=0, reason="none passed"), MONOTONIC)[-2:]
    assert cycle.text.startswith("training: acceptance length 1.")


@pytest.mark.parametrize("paused_before", [False, True])
@pytest.mark.parametrize("end", [[], [said("cycle_end", published=None, reason="cancelled")]], ids=["none", "cut"])
def test_a_drift_whose_cycle_was_cut_short_by_the_end_is_known_to_the_next_appliance(
    workshop: Workshop, end: list[Message], paused_before: bool
) -> None:
    core = up(workshop, 0)
    record(
        workshop, core, requests(0, 1.8, 400), requests(0, 1.3, 400, first=1000), Totals({"tokens": 300}, held_out=4)
    )
    record(workshop, core, said("pool", version=None, served=0, reason="none passed"))
    if paused_before:  # the cycle that goes on does so for the same drift
        record(workshop, core, PauseAsked(1, True), said("cycle_end", published=None, reason="cancelled"))
        record(workshop, core, PauseAsked(2, False))
    assert len(read_events(workshop.paths.database, kind="cycle")) == 1 + paused_before
    record(workshop, core, *end)
    actions = up(workshop, 0).handle(Totals({"tokens": 450}, held_out=4), MONOTONIC)
    assert [action.command["cmd"] for action in actions] == ["choose"]


# --- a version that has passed the gate


def test_a_version_that_has_passed_and_was_never_served_is_found(workshop: Workshop, tmp_path: Path) -> None:
    paths = workshop.paths
    store = DraftStore(paths.drafts)

    def found(served: int | None = 0) -> int | None:
        one = find_unserved(store, paths.database, served)
        return one.version if one else None

    assert found(None) is None
    publish(paths.drafts, None, tmp_path / "scratch")
    assert found() is None
    for parent in (0, 0, 1):
        publish(paths.drafts, parent, tmp_path / "scratch")
    assert (found(0), found(1), found(3)) == (2, 3, None)  # the newest of those judged against the served one
    store.mark_bad(2, "it fell short")
    assert found() == 1
    journal = Journal(paths.database)
    journal.note("swap", "v0001 is served", {"version": 1, "before": 0})
    assert found() is None  # it was
    publish(paths.drafts, 0, tmp_path / "scratch")
    assert found() == 4
    journal.note("use", "v0000 asked for by the user", {"version": 0})
    journal.close()
    assert found() is None


def test_the_attempts_at_a_version_are_counted_over_all_lives(workshop: Workshop, tmp_path: Path) -> None:
    paths = workshop.paths
    for parent in (None, 0):
        publish(paths.drafts, parent, tmp_path / "scratch")

    def life() -> tuple[bool, Core]:
        one = find_unserved(DraftStore(paths.drafts), paths.database, 0)
        core, chosen = new_core(workshop), DraftChosen(0)
        if one is not None:
            chosen = DraftChosen(0, passed=one)
        for message in (Began(), chosen, Answered(1)):
            core.handle(message, MONOTONIC)
        return one is not None, core

    for attempt in range(3):
        found, core = life()
        assert found
        assert core.learning.serving.under_way == Swap(1, 1)
        record(workshop, core, Exited(ENGINE, 1, -9))
        told = read_events(paths.database, kind="swap_refused")
        assert len(told) == attempt + 1
    assert told[-1]["text"].endswith("that was the last of 3 attempts")
    assert not life()[0]


def test_a_damaged_manifest_hides_no_other_version(workshop: Workshop, tmp_path: Path) -> None:
    paths = workshop.paths
    for parent in (None, 0, 0):
        publish(paths.drafts, parent, tmp_path / "scratch")
    path = DraftStore(paths.drafts).path(2) / "manifest.json"
    path.chmod(0o600)
    path.write_text("{}")
    one = find_unserved(DraftStore(paths.drafts), paths.database, 0)
    assert one is not None
    assert one.version == 1


# --- a version that was taken back


@pytest.fixture
def supervisor(workshop: Workshop, tmp_path: Path) -> Iterator[Supervisor]:
    """Of an appliance with v0000 and v0001, whose target is there."""
    for parent in (None, 0):
        publish(workshop.paths.drafts, parent, tmp_path / "scratch")
    made = Supervisor(workshop, engine=None, in_place=lambda: True, on_event=lambda event: None)
    yield made
    made._journal.close()


@pytest.mark.parametrize(
    ("since", "version"),
    [
        ([], 0),
        ([("swap_refused", 0), ("ready", 1)], 0),
        ([("use", 0), ("trusted", 0)], 0),
        ([("use", 1)], 1),
        ([("trusted", 1)], 1),
        ([("swap", 1)], 1),
    ],
)
def test_a_version_that_was_taken_back_and_never_left_is_not_served_by_the_next_appliance(
    supervisor: Supervisor, since: list[tuple[str, int]], version: int
) -> None:
    supervisor._journal.serve(1)
    supervisor._journal.note("swap", "", {"version": 1, "before": 0})
    assert supervisor._choose_draft() == DraftChosen(1)
    supervisor._journal.note("rollback", "v0001 is taken back", {"version": 1, "previous": 0})
    for kind, about in since:
        supervisor._journal.note(kind, "", {"version": about})
    chosen = supervisor._choose_draft()
    assert (chosen.version, chosen.taken_back) == (version, None if version else 1)
    assert chosen.reason == ("" if version else "v0001 is taken back")
    supervisor._journal.serve(version)  # the engine has it
    assert supervisor._choose_draft().version == version


def test_a_version_that_was_taken_back_stays_where_the_one_before_cannot_be_served(supervisor: Supervisor) -> None:
    supervisor._journal.serve(1)
    supervisor._journal.note("rollback", "v0001 is taken back", {"version": 1, "previous": 0})
    weights = DraftStore(supervisor._paths.drafts).path(0) / "model.safetensors"
    weights.chmod(0o600)
    weights.write_bytes(b"")
    assert supervisor._choose_draft() == DraftChosen(1)


def test_without_a_journal_the_newest_version_that_is_not_bad_is_served(supervisor: Supervisor) -> None:
    store = DraftStore(supervisor._paths.drafts)
    store.mark_bad(1, "it fell short")
    assert supervisor._choose_draft() == DraftChosen(0)
    store.mark_bad(0, "it fell short too")
    assert supervisor._choose_draft() == DraftChosen(1)
    (store.root / "marks.json").write_text("")
    assert supervisor._choose_draft() == DraftChosen(1)


def test_the_loop_does_not_wait_for_a_mark(supervisor: Supervisor) -> None:
    """Which whoever holds the store's lock keeps waiting, while the swap back is due."""
    store = DraftStore(supervisor._paths.drafts)
    with (store.root / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        supervisor._carry_out(MarkBad(1, "it fell short"))
        assert store.marks().bad == {}
    for thread in threading.enumerate():
        if thread.name == "mark-1":
            thread.join()
    assert store.marks().bad == {1: "it fell short"}
