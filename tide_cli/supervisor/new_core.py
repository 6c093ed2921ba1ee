"""The core of an appliance that begins: what its settings say, and what the journal knows of those before it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tide_cli.adaptation.drift import DriftRules
from tide_cli.adaptation.gate import MINIMUM_SAMPLES
from tide_cli.adaptation.rollback import RollbackRules, Watch
from tide_cli.adaptation.trigger import TriggerRules, TriggerState
from tide_cli.json_files import checked
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.cycle_trigger import HEARD, CycleTrigger
from tide_cli.supervisor.journal import read_events, unfinished_trial, was_paused
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.lifecycle import Limits, RestartPolicy
from tide_cli.supervisor.performance import Performance
from tide_cli.supervisor.specs import Workshop

_T = TypeVar("_T")
_NEWEST = 20  # cycles that may have gone on with one that a pause has cut short


def new_core(workshop: Workshop) -> Core:
    """Raises TideError where the journal cannot be read."""
    settings, database = workshop.settings, workshop.paths.database
    trial = unfinished_trial(database)
    rules = TriggerRules(
        settings.cycle_tokens,
        settings.cycle_every,
        max(1, settings.cycle_tokens // 4),
        most_share=settings.train_share if workshop.plan.trainer == "shared" else 1.0,
        held_out=MINIMUM_SAMPLES,
        margin=settings.gate_margin,
    )
    learning = Learning(
        remembered_trigger(rules, database),
        Performance(DriftRules(settings.drift_epsilon), RollbackRules(settings.rollback_margin)),
        paused=was_paused(database),
        pool=settings.draft_pool,
        trial=_known(Watch, trial),
    )
    limits = Limits(
        settings.start_timeout,
        settings.stop_timeout,
        settings.hang_timeout,
        settings.train_hang_timeout,
        RestartPolicy(limit=settings.restart_limit),
    )
    trains = workshop.plan.train is not None  # the settings may ask for it where no device has room
    return Core(workshop.steps(), trains, limits, learning)


def remembered_trigger(rules: TriggerRules, database: Path) -> CycleTrigger:
    """As the appliance before this one has left it; where none has ever trained, time counts from now."""
    now, wall = time.monotonic(), time.time()
    begun = read_events(database, newest=1, kind="cycle")
    after = begun[0]["id"] if begun else 0
    later = [event for kind in HEARD for event in read_events(database, after=after, kind=kind)]
    state = _decided_from(begun[0]) if begun else TriggerState()
    trigger = CycleTrigger(rules, replace(state, began=now, rests_until=None))
    for event in [*begun, *sorted(later, key=lambda event: event["id"])]:
        # on the clock of the core, which an earlier appliance has not shared
        then = now - max(0.0, wall - event["time"])
        with suppress(KeyError, TypeError, ValueError):  # of another version of this program
            trigger.heard(event["kind"], event["text"], event["data"], then)
    ended = not trigger.abandon() or any(event["kind"] == "gate" for event in later)
    # the end of an appliance cuts a cycle short too, and no pause has asked for it to be gone on with
    paused = was_paused(database)
    if trigger.state.drift is None and (not ended or (trigger.state.cut and not paused)):
        trigger.state = replace(trigger.state, drift=_began_on(database))
    trigger.state = replace(trigger.state, cut=trigger.state.cut and paused)
    return trigger


def _began_on(database: Path) -> str | None:
    """The drift that the last cycle was to answer, or the one that it has gone on with; None where it was another
    reason that began it."""
    for event in reversed(read_events(database, newest=_NEWEST, kind="cycle")):
        state = _decided_from(event)
        if state.drift is not None or not (state.cut and state.early):
            return state.drift
    return None


def _decided_from(event: Mapping[str, Any]) -> TriggerState:
    """The state in which a cycle was begun; one that knows of nothing where the event does not say."""
    decided = event["data"].get("decided_from")
    return _known(TriggerState, decided.get("state") if isinstance(decided, dict) else None) or TriggerState()


def _known(kind: type[_T], values: object) -> _T | None:
    """What a journal says of a state, which another version of this program may have written: without the fields that
    are unknown here; None where it does not fit."""
    try:
        return checked(kind, values)
    except ValueError:
        return None
