"""The settings of a demo's appliance."""

from __future__ import annotations

import os
from pathlib import Path

from tide_cli.bench.engines import HOST, free_port
from tide_cli.settings import Settings, load_settings

# What makes a demo short. TIDE_* in the environment overrules each.
_SETTINGS = {
    "gate_margin": 0.3,  # the first deployed draft shall be a plain improvement
    "cycle_tokens": 3000,
    "cycle_seconds": 75.0,
    "held_out_share": 0.25,  # so that the first gate finds enough samples
    "gate_samples": 24,
    "spool_size": 512 * 2**20,
    "reservoir_size": 256 * 2**20,  # an eighth of so small a ring would keep less than an appliance does
}


def demo_settings(state: Path, concurrency: int) -> Settings:
    """Settings of a demo on `state` and a free port of the loopback. Raises UsageError."""
    chosen = {name: value for name, value in _SETTINGS.items() if f"TIDE_{name.upper()}" not in os.environ}
    fixed = {"state_dir": state, "host": HOST, "port": free_port(), "target": "smollm2-135m"}
    settings = load_settings({**chosen, **fixed})
    # what a demo cannot do without, whatever the user's own settings say
    return settings.model_copy(
        update={
            "draft": None,
            "speculation": "on",  # both drafts are measured at work
            "capture": True,
            "training": True,
            "max_running_requests": max(settings.max_running_requests, concurrency),
        }
    )
