"""A scripted run, written to the events table and read again: what a decision's event holds gives it once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from histories import History, requests, said, with_a_new_draft

from tide_cli.adaptation import drift, rollback
from tide_cli.adaptation.drift import DriftRules, DriftState
from tide_cli.adaptation.rollback import RollbackRules, Watch
from tide_cli.adaptation.trigger import TriggerRules, TriggerState, should_train
from tide_cli.supervisor.journal import Journal, read_events
from tide_cli.supervisor.messages import PauseAsked, Swapped, Totals, TrainAsked


def events(folder: Path, history: History, kind: str) -> list[dict[str, Any]]:
    journal = Journal(folder / "tide.db")
    for note in history.notes:
        journal.note(note.kind, note.text, note.data)
    journal.close()
    found = read_events(folder / "tide.db", kind=kind)
    assert found
    return found


def decided(event: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    found = event["data"]["decided_from"]
    return found["state"], found["rules"], found["input"]


def test_drift(tmp_path: Path) -> None:
    history = History().serving()
    for first, length in enumerate((1.8, 1.3, 1.8, 1.2)):
        history.tell(requests(0, length, 60, first=1000 * first))
    found = events(tmp_path, history, "drift")
    assert len(found) >= 2
    for event in found:
        state, rules, given = decided(event)
        assert state["short_steps"] > 0  # of before the averages began anew
        _, again = drift.observe(DriftState.from_json(state), DriftRules(**rules), **given)
        assert (again.drifted, again.reason) == (True, event["text"])


@pytest.mark.parametrize(("length", "kind"), [(1.2, "doubt"), (1.08, "rollback"), (1.8, "trusted")])
def test_rollback(tmp_path: Path, length: float, kind: str) -> None:
    history = with_a_new_draft()
    history.tell(requests(1, length, 60, first=200))
    for event in events(tmp_path, history, kind):
        state, values, given = decided(event)
        rules = RollbackRules(**values)
        watch, again = rollback.observe(Watch.from_json(state), rules, **given)
        assert again.verdict == ("trusted" if kind == "trusted" else "rolled_back")
        assert again.reason in event["text"]
        if kind != "trusted":
            assert rollback.is_hopeless(watch, rules) == event["data"]["hopeless"] == (kind == "rollback")


def test_trigger(tmp_path: Path) -> None:
    history, total = History().serving(), 0

    def ends(cycle: int, **gate: Any) -> None:
        history.tell(said("gate", cycle=cycle, **gate))
        history.tell(said("cycle_end", cycle=cycle, published=None), at=history.now + 5)

    for cycle in range(3):
        total += 4000
        history.tell(Totals({"tokens": total}, held_out=20), at=history.now + 100)
        ends(cycle, passed=False, lower_bound=-0.1)
    history.tell(TrainAsked(1))
    ends(4, passed=False, lower_bound=-0.1)
    history.tell(requests(0, 1.8, 60))
    history.tell(requests(0, 1.3, 30, first=100))
    history.tell(Totals({"tokens": total + 200}, held_out=20))
    history.tell(said("pool", version=None, served=0, reason="none passed"))
    history.tell(PauseAsked(2, True))
    history.tell(said("cycle_end", cycle=5, published=None, reason="cancelled"))
    history.tell(PauseAsked(3, False))
    found = events(tmp_path, history, "cycle")
    assert len(found) == 6
    for event in found:
        state, rules, given = decided(event)
        again = should_train(TriggerState.from_json(state), TriggerRules(**rules), **given)
        assert (again.train, f"training: {again.reason}") == (True, event["text"])


def test_the_events_stay_small(tmp_path: Path) -> None:
    history = with_a_new_draft()
    for first in range(2, 20):
        history.tell(requests(1, 1.8 if first % 4 else 1.3, 60, first=1000 * first))
        history.tell(Swapped(1, 1))
    assert (
        max(
            len(str(event["data"]))
            for kind in ("drift", "trusted", "cycle")
            for event in events(tmp_path, history, kind)
        )
        < 2500
    )
