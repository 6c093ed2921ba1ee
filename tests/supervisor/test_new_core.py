"""What an appliance that begins takes over from the journal of those before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from histories import requests, said
from scripted import scripted_settings

from tide_cli.adaptation.lengths import Lengths
from tide_cli.supervisor import new_core as under_test
from tide_cli.supervisor.appliance import check_settings
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.journal import Journal, read_events
from tide_cli.supervisor.messages import Answered, Began, DraftChosen, MarkBad, Note, Swap, Swapped, Totals, UseAsked
from tide_cli.supervisor.new_core import new_core
from tide_cli.supervisor.specs import Workshop

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
