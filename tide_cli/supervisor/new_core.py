"""The core of an appliance that begins: what its settings say, and what the journal knows of those before it."""

from __future__ import annotations

import time

from tide_cli.adaptation.drift import DriftRules
from tide_cli.adaptation.gate import MINIMUM_SAMPLES
from tide_cli.adaptation.rollback import RollbackRules, Watch
from tide_cli.adaptation.trigger import TriggerRules
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.journal import read_events, unfinished_trial, was_cut_short, was_paused
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.lifecycle import Limits, RestartPolicy
from tide_cli.supervisor.performance import Performance
from tide_cli.supervisor.specs import Workshop


def new_core(workshop: Workshop) -> Core:
    """Raises TideError where the journal cannot be read."""
    settings, database = workshop.settings, workshop.paths.database
    cycles, trial = read_events(database, newest=1, kind="cycle"), unfinished_trial(database)
    learning = Learning(
        TriggerRules(
            settings.cycle_tokens,
            settings.cycle_every,
            max(1, settings.cycle_tokens // 4),
            most_share=settings.train_share if workshop.plan.trainer == "shared" else 1.0,
            held_out=MINIMUM_SAMPLES,
        ),
        Performance(DriftRules(settings.drift_epsilon), RollbackRules(settings.rollback_margin)),
        cycles[0]["data"].get("tokens_total", 0) if cycles else 0,
        # on the clock of the core, which an earlier appliance has not shared
        time.monotonic() - (max(0.0, time.time() - cycles[0]["time"]) if cycles else 0.0),
        paused=was_paused(database),
        cut_short=was_cut_short(database),
        pool=settings.draft_pool,
        trial=Watch.from_json(trial) if trial else None,
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
