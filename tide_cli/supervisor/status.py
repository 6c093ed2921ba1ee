"""The appliance at one moment, as plain values: for the control API, the live display and `tide status --json`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from tide_cli.drafts.store import DraftStore
from tide_cli.supervisor.control_client import STATUS_VERSION
from tide_cli.supervisor.core import Core
from tide_cli.supervisor.learning import Doing, Learning
from tide_cli.supervisor.messages import ENGINE, TRAINER
from tide_cli.supervisor.specs import Workshop
from tide_cli.supervisor.watchers import Seen
from tide_cli.telemetry.load import no_load

_EVENTS_SHOWN = 8
_FIGURES = ("tok_s", "accept_length", "running", "queued")


def make_status(
    workshop: Workshop,
    core: Core,
    pids: Mapping[str, int],
    seen: Seen,
    phases: Mapping[str, Mapping[str, Any] | None],
    versions: list[dict[str, Any]],
    events: list[dict[str, Any]],
    begun: float,
    now: float,
) -> dict[str, Any]:
    """phases: of children that are starting (see EngineStart), by name; versions: of the draft (see VersionRows).

    begun: unix seconds of the start; now: the monotonic second that the children's `since` belong to.
    """
    settings, learning = workshop.settings, core.learning
    speculation = core.speculation.live(learning.served, seen.figures.running if seen.figures else None)
    children = {
        name: {
            "state": str(child.state),
            "pid": pids.get(name),
            "starts": child.generation,
            "failures": child.failures,
            "seconds": round(now - child.since, 3) if child.generation else 0.0,
            "reason": child.reason,
            "phase": phases.get(name),
        }
        for name, child in core.children.items()
    }
    store, in_use = DraftStore(workshop.paths.drafts), core.versions_in_use()
    return {
        "version": STATUS_VERSION,
        "state": str(core.state),
        "reason": core.reason or core.children[ENGINE].reason,
        "address": address(settings.host, settings.port),
        "target": workshop.target.name,
        "state_dir": str(workshop.paths.state),
        "pid": os.getpid(),
        "started": begun,
        "notes": [
            *workshop.plan.notes,
            *([f"capture has stopped: {core.capture_failure}"] if core.capture_failure else []),
        ],
        "children": children,
        "engine": {name: getattr(seen.figures, name) for name in _FIGURES} if seen.figures else None,
        "engine_answered": seen.answered,
        "load": dict(seen.load or no_load()),
        "plain_tok_s": speculation.pop("plain_tok_s"),
        "speedup": speculation.pop("speedup"),
        "speculation": core.speculation.state,
        "spool": {**learning.totals, "fill": seen.fill} if learning.totals else {},
        "drafts": {
            "served": learning.served,
            "latest": store.latest(),
            "in_use": None if in_use is None else sorted(in_use),
            "versions": versions,
        },
        "training": {
            "enabled": TRAINER in core.children,
            "paused": learning.paused,
            "running": learning.doing is Doing.CYCLE,
            "new_tokens": learning.new_tokens,
            "cycle_tokens": learning.tokens_needed,
            "progress": dict(learning.progress),
            "coverage": dict(learning.coverage) if learning.coverage else None,
        },
        "trigger": {"tokens": learning.new_tokens, "needed": learning.tokens_needed},
        "cycle": cycle(learning, TRAINER in core.children),
        "live": {
            "acceptance_length": learning.performance.seen.length or None,
            "requests": learning.performance.seen.count,
            "domains": learning.performance.domains,
            "on_trial": learning.performance.watch is not None,
            **speculation,
        },
        "gate": gate(learning),
        "devices": list(seen.devices),
        "events": events[-_EVENTS_SHOWN:],
    }


def cycle(learning: Learning, trains: bool) -> dict[str, Any]:
    """The status field `cycle`. state: off, paused, waiting, begins, training, or gate once its training time is over;
    choosing or comparing while the trainer walks kept versions, or the served one beside the one before.

    Figures as of the trainer's last report, None before it.
    """
    progress = learning.progress
    elapsed, budget = progress.get("elapsed_s"), progress.get("budget_s")
    remaining = None if elapsed is None or budget is None else max(0.0, round(budget - elapsed, 1))
    match learning.doing:
        case Doing.CYCLE:
            state = "begins" if remaining is None else "training" if remaining else "gate"
        case Doing.POOL:
            state = "choosing"
        case Doing.COMPARISON:
            state = "comparing"
        case Doing.NOTHING:
            state = "off" if not trains else "paused" if learning.paused else "waiting"
    figures = {"loss": progress.get("loss"), "tokens_s": progress.get("tokens_s")}
    rests = max(0.0, round((learning.rests_until or 0.0) - time.monotonic(), 1))
    return {"state": state, "seconds": elapsed, "remaining_s": remaining, "rests_s": rests, **figures}


def gate(learning: Learning) -> dict[str, Any] | None:
    """The status field `gate`: the last verdict, without the walks that it was made from."""
    event = learning.last_gate
    return {name: value for name, value in event.items() if name != "decided_from"} if event else None


def address(host: str, port: int) -> str:
    """Base URL of the OpenAI-compatible API, as a client on this machine would write it."""
    return f"http://{reachable(host)}:{port}/v1"


def reachable(host: str) -> str:
    """A host to connect to, from a host to listen on; IPv6 in brackets."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
