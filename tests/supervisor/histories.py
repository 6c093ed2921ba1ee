"""Histories: a list of (seconds, message), and the actions that the core takes. No process, no clock."""

from __future__ import annotations

from typing import Any

from tide_cli.adaptation.drift import DriftRules
from tide_cli.adaptation.rollback import RollbackRules
from tide_cli.adaptation.trigger import TriggerRules, TriggerState
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.cycle_trigger import CycleTrigger
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.lifecycle import Limits, RestartPolicy, State
from tide_cli.supervisor.messages import (
    TRAINER,
    Action,
    Answered,
    Began,
    DraftChosen,
    Message,
    Note,
    Observed,
    Speculates,
    Swap,
    Swapped,
    Tell,
    Totals,
    TrainerSaid,
)
from tide_cli.supervisor.performance import Performance
from tide_cli.telemetry.totals import ServedRequest

COMPARE = Tell({"cmd": "choose", "served": 1, "among": [0]})
POLICY = RestartPolicy(limit=3, first_delay=1.0, longest_delay=60.0, settled=300.0)


def learning(trained_at: int = 0, pool: bool = True) -> Learning:
    return Learning(
        CycleTrigger(TriggerRules(1000, least_tokens=100), TriggerState(trained_at)),
        Performance(
            DriftRules(warm_up=1000, short_steps=200, long_steps=2000),
            RollbackRules(first_tokens=500, last_tokens=4000),
        ),
        pool=pool,
    )


class History:
    """A core, and everything it has decided."""

    def __init__(
        self, steps: tuple[str, ...] = (), trains: bool = True, pool: bool = True, trained_at: int = 0
    ) -> None:
        self.core = Core(steps, trains, Limits(100.0, 20.0, 90.0, 300.0, POLICY), learning(trained_at, pool))
        self.now = 0.0
        self.notes: list[Note] = []

    def tell(self, message: Message, at: float | None = None) -> list[Action]:
        """The decisions, notes put aside."""
        self.now = self.now if at is None else at
        actions = self.core.handle(message, self.now)
        self.notes += [action for action in actions if isinstance(action, Note)]
        return [action for action in actions if not isinstance(action, Note)]

    def kinds(self) -> list[str]:
        return [note.kind for note in self.notes]

    def state(self, child: str) -> State:
        return self.core.children[child].state

    def serving(self) -> History:
        """Engine and trainer READY, v0000 served."""
        self.tell(Began())
        self.tell(DraftChosen(0))
        self.tell(Answered(1), at=10)
        self.tell(said("ready", seconds=1.0), at=12)
        assert self.core.state is State.READY
        assert self.state(TRAINER) is State.READY
        return self


def said(kind: str, generation: int = 1, **fields: Any) -> TrainerSaid:
    return TrainerSaid(generation, {"event": kind, **fields})


def requests(version: int, length: float, count: int, first: int = 1) -> Observed:
    """`count` requests of about 100 tokens with this acceptance length, give or take a tenth."""
    rows = []
    for number in range(first, first + count):
        steps = 60 + number % 7
        rows.append(ServedRequest(number, version, round(steps * (length + (number % 3 - 1) / 10)), steps))
    return Observed(tuple(rows))


def speculates(version: int | None, **state: Any) -> Speculates:
    """The engine's report, with the draft that it has."""
    report = {
        "adaptive": True, "steps": 3, "reason": "because", "batch": 1, "speedup": 1.2, "acceptance": [0.5],
        "probe_share": 0.0, "rounds": {"3": 10}, "measuring": False, "draft_version": version, **state,
    }  # fmt: skip
    return Speculates(1, report)


def with_a_new_draft() -> History:
    """v0001 has been published with a gain of 0.3 and is served."""
    history = History().serving()
    history.tell(requests(0, 1.5, 20))
    history.tell(Totals({"tokens": 1000}))
    history.tell(said("gate", cycle=1, passed=True, candidate_al=1.8, served_al=1.5, lower_bound=0.2))
    assert history.tell(said("published", cycle=1, version=1, parent=0)) == [Swap(1, 1)]
    history.tell(said("cycle_end", cycle=1, published=1))
    history.tell(Swapped(1, 1))
    assert history.core.learning.served == 1
    return history
