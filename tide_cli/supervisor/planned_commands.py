"""The engine's and the trainer's commands as an appliance would start them now, made without touching the disk."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tide_cli.engine.launch import cpu_environment, engine_command
from tide_cli.hardware.partition import partition_environment
from tide_cli.hardware.plan import Partition, Plan
from tide_cli.hardware.plan_settings import target_shape
from tide_cli.settings import Settings
from tide_cli.supervisor.journal import read_served
from tide_cli.supervisor.specs import trainer_argv
from tide_cli.targets import PreparedTarget, Target, describe

# The trainer gets the number of a pipe behind its last option; it is known when the process starts.
_DESCRIPTOR = "N"


@dataclass(frozen=True)
class PlannedCommand:
    """argv, the variables added to the environment, and the cores the process is bound to."""

    argv: list[str]
    env: dict[str, str]
    cores: tuple[int, ...]


def planned_commands(settings: Settings, target: Target, plan: Plan) -> dict[str, PlannedCommand]:
    """'engine', and 'trainer' where one is planned. A target that is not here yet is called by its hub id."""
    engine = engine_command(
        settings,
        _target_files(target),
        plan,
        served_version=read_served(settings.paths.database) or 0,
        run="",
        spool_size=plan.spool_size or 0,
        write=False,
    )
    commands = {"engine": _command(engine.argv, engine.env, plan.serve)}
    if plan.train:
        argv = [sys.executable, *trainer_argv(settings.paths.run / "training.json"), _DESCRIPTOR]
        env = cpu_environment() if plan.train.device == "cpu" else {}
        commands["trainer"] = _command(argv, env, plan.train)
    return commands


def _command(argv: list[str], env: dict[str, str], partition: Partition) -> PlannedCommand:
    return PlannedCommand(argv, partition_environment(partition, dict(os.environ)) | env, partition.cores)


def _target_files(target: Target) -> PreparedTarget:
    if target.folder and (target.folder / "config.json").is_file():
        return describe(target.folder, target)
    shape = target_shape(target)
    return PreparedTarget(
        name=target.name,
        folder=target.folder or Path(str(target.hub_id)),
        revision="",
        hidden_size=shape.hidden_size if shape else 0,
        vocab_size=shape.vocab_size if shape else 0,
        num_layers=shape.layers if shape else 0,
        context_length=shape.context_length if shape else 0,
        sglang_arguments=target.sglang_arguments,
    )
