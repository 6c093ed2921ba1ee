"""`tide train replay`: a recorded cycle once more, in a process of its own, and what differs."""

from __future__ import annotations

import json as text
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.output import print_json, print_table
from tide_cli.cli.running import train_app
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import TideError
from tide_cli.printable import many

if TYPE_CHECKING:
    from tide_cli.paths import Paths
    from tide_cli.training.record import CycleRecord


@train_app.command("replay")
def train_replay(
    cycle: Annotated[int, typer.Argument(min=1, max=10**9, help="Its number, as `tide events` tells it.")],
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=2**63, help="Another order of the batches and another seed of the gate."),
    ] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Run a recorded cycle again, and compare.

    Nothing is published. Exit code 1 where it comes out differently though the seed is the same. It takes as long as
    the cycle did, and runs beside an appliance or without one.
    """
    from tide_cli.cli.progress import progress
    from tide_cli.training.record import CycleRecord

    paths = appliance_paths(state_dir, config)
    record = CycleRecord.read(paths.training, cycle)
    argv = [sys.executable, "-m", "tide_cli.training", "replay", f"--cycle={cycle}"]
    argv += [f"--state={paths.training}", f"--spool={paths.spool}", f"--drafts={paths.drafts}"]
    if seed is not None:
        argv.append(f"--seed={seed}")
    with progress(f"cycle {cycle}, {many(len(record.steps), 'step')}") as tick:
        found = _run(argv, _environment(record, paths), tick)
    if json:
        print_json(found)
    else:
        print_table(("what", "recorded", "replayed"), _rows(found))
        print(_verdict(found))
    return int(found["same"] is False)


def _environment(record: CycleRecord, paths: Paths) -> dict[str, str]:
    """TideError where the configuration of the record cannot be one."""
    from tide_cli.engine.launch import cpu_environment
    from tide_cli.training.config import TrainingConfig

    config = TrainingConfig.from_json(text.dumps(record.config))
    added = cpu_environment() if config.device == "cpu" else {}
    return {"SGLANG_CACHE_DIR": str(paths.kernels), **os.environ, **added, "OMP_NUM_THREADS": str(config.threads)}


def _run(argv: list[str], environment: Mapping[str, str], tick: Callable[[float, float], None]) -> dict[str, Any]:
    """The result that the process reports. TideError with its last words where it reports none."""
    reading, writing = os.pipe()
    argv = [*argv, "--events-fd", str(writing)]
    with TemporaryFile("w+") as log, os.fdopen(reading, encoding="utf-8") as events:
        with subprocess.Popen(
            argv, env=environment, pass_fds=[writing], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as process:
            os.close(writing)
            for line in events:
                event = text.loads(line)
                kind = event.pop("event")
                if kind == "error":
                    raise TideError(event["what"], why=event["why"], remedy=event["remedy"])
                if kind == "replayed":
                    return event
                tick(event["step"], event["steps"])
        log.seek(0)
        last = (log.read().strip().splitlines() or ["it said nothing"])[-1]
    # one that is short of memory is killed, and an exception has said what is wrong
    remedy = "see whether there is memory enough" if process.returncode < 0 else "replay another cycle"
    raise TideError("the replay ended without a result", why=last, remedy=remedy)


def _rows(found: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    sides = (found["recorded"], found["replayed"])
    names = ("passed", "candidate_al", "served_al", "gain", "lower_bound", "samples")
    return [
        ("loss of the last step", *(f"{side['loss']:.6f}" for side in sides)),
        ("weights kept of step", *(side["kept"] for side in sides)),
        ("weights", *(side["weights"] and side["weights"][:12] for side in sides)),
        *((f"gate: {name.replace('_', ' ')}", *((side["gate"] or {}).get(name) for side in sides)) for name in names),
    ]


def _verdict(found: dict[str, Any]) -> str:
    if found["same"] is None:
        return f"seed {found['seed']}: another order, so that the figures show how much it matters"
    if found["identical"] and found["same"]:
        return "the same, bit for bit"
    words = f"largest relative difference of a loss {found['loss_difference']:.2g}"
    return f"{'the same but for rounding' if found['same'] else 'not the same'}: {words}"
