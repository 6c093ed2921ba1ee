"""Runs of the embedded target that were measured, and what the simulator says of them.

`PYTHONPATH=. python tests/simulation/recorded_runs.py` prints the tables of docs/simulation.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.engine.plugin.profile import Profile
from tide_cli.settings import Settings
from tide_cli.simulation.acceptance import Learnable
from tide_cli.simulation.arrivals import Load
from tide_cli.simulation.loop import Setup, simulate
from tide_cli.simulation.machine import Measured
from tide_cli.simulation.options import FORGET_TOKENS, LEARN_TOKENS
from tide_cli.simulation.ring import Ring
from tide_cli.simulation.trainer import CpuTrainer
from tide_cli.spool.layout import RowLayout
from tide_cli.targets import known_targets

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "smollm2.json").read_text())
MACHINES = {name: Measured.of(Profile.from_json(one)) for name, one in RECORDED["profiles"].items()}


@dataclass(frozen=True)
class Prediction:
    """Output tokens/s."""

    name: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    def row(self) -> str:
        """The line of a table in docs/simulation.md."""
        digits = 2 if self.measured < 10 else 1
        return f"| {self.name} | {self.measured:.{digits}f} | {self.predicted:.{digits}f} | {self.error:+.0%} |"


def ring(settings: Settings, gib: float = 0.5) -> Ring:
    return Ring(RowLayout(576, target="t"), int(gib * 2**30), settings.max_sample_tokens, settings.held_out_share)


def predict(run: dict[str, Any]) -> Prediction:
    """So many requests, so many at a time, all alike and all of the mean length."""
    settings = Settings(speculation=run["steps"] or "off", draft_steps=max(1, run["steps"]))
    load = Load(
        concurrency=run["concurrency"],
        requests=run["requests"],
        input_tokens=RECORDED["prompt_tokens"],
        output_tokens=RECORDED["output_tokens"],
        even=True,
    )
    length = run["acceptance_length"]
    learnable = Learnable(length, length, 1.0, 1.0, settings.draft_steps)
    done = simulate(Setup(MACHINES[run["dtype"]], settings, learnable, load, ring(settings), 3600.0))
    rate = done.tokens / max(one.at for one in done.finished)
    return Prediction(f"{run['name']}, {run['dtype']}, {run['concurrency']} at a time", run["output_tok_s"], rate)


def ratios(predictions: list[Prediction]) -> list[Prediction]:
    """Of each draft over what it is compared with, which stands before it."""
    pairs = zip(predictions[::2], predictions[1::2], strict=True)
    return [
        Prediction(
            f"{after.name}, over {before.name.rsplit(', ', 2)[0]}",
            after.measured / before.measured,
            after.predicted / before.predicted,
        )
        for before, after in pairs
    ]


def demo() -> dict[str, Prediction]:
    """The demo from its first request on, with its own settings: one core serves, another one trains."""
    recorded = RECORDED["demo"]
    settings = Settings(speculation="on", **recorded["settings"])
    load = Load(
        concurrency=4, input_tokens=RECORDED["prompt_tokens"], output_tokens=RECORDED["output_tokens"], even=True
    )
    learnable = Learnable(recorded["first"], recorded["reachable"], LEARN_TOKENS, FORGET_TOKENS, settings.draft_steps)
    shape = known_targets()["smollm2-135m"].shape
    assert shape is not None
    trainer = CpuTrainer(shape, shape.usual_draft, settings.draft_steps, 1)
    run = simulate(Setup(MACHINES["float32"], settings, learnable, load, ring(settings), 300.0, trainer))
    first = {kind: next(event for event in run.events if event.kind == kind) for kind in ("cycle", "gate", "swap")}
    found = {
        "cycle begins after, s": first["cycle"].at,
        "better draft served after, s": first["swap"].at,
        "gain that the gate saw": first["gate"].data["gain"],
    }
    return {name: Prediction(name, recorded[name], value) for name, value in found.items()}


if __name__ == "__main__":
    found = [predict(run) for run in RECORDED["runs"]]
    for one in (*found, *ratios(found), *demo().values()):
        print(one.row())
