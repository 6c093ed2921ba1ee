"""Options that are settings: each stands here once, for every command that takes it.

Numbers come as text: settings.py reads and refuses them, in the same words as those of the environment and the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli.cli.where import path_option
from tide_cli.errors import UsageError

WHOLE, REAL = "INTEGER", "NUMBER"


def flag(name: str, text: str, kind: str | None = None) -> Any:
    """An option of the name of a setting; kind: WHOLE or REAL for a number."""
    return typer.Option(name, help=text, show_default=False, metavar=kind)


def _switch(names: str, text: str) -> Any:
    return typer.Option(names, help=text, show_default=False)


Target = Annotated[str | None, flag("--target", "Known target, checkpoint folder or hub id.")]
Draft = Annotated[str | None, flag("--draft", "EAGLE3 draft to start with: folder or hub id.")]
CacheDir = Annotated[Path | None, path_option("--cache-dir", "Folder of converted targets.")]
Host = Annotated[str | None, flag("--host", "Address to listen on.")]
Port = Annotated[str | None, flag("--port", "Port to listen on.", WHOLE)]
Dtype = Annotated[str | None, flag("--dtype", "auto, float32 or bfloat16.")]
ContextLength = Annotated[str | None, flag("--context-length", "Longest sequence, in tokens.", WHOLE)]
MaxRunningRequests = Annotated[str | None, flag("--max-running-requests", "Requests decoded together at most.", WHOLE)]

Gpus = Annotated[str | None, flag("--gpus", "GPUs that may be used, e.g. 0-3, or cpu.")]
ServeGpus = Annotated[str | None, flag("--serve-gpus", "GPUs of the engine, e.g. 0,1.")]
TrainGpus = Annotated[str | None, flag("--train-gpus", "GPUs of the trainer, or cpu.")]
Tp = Annotated[str | None, flag("--tp", "GPUs one copy of the target is spread over.", WHOLE)]
ServeCores = Annotated[str | None, flag("--serve-cores", "CPU cores of the engine, e.g. 0-3.")]
TrainCores = Annotated[str | None, flag("--train-cores", "CPU cores of the trainer.")]

SpoolSize = Annotated[str | None, flag("--spool-size", "Size of the spool, e.g. 2GiB.")]
CycleTokens = Annotated[str | None, flag("--cycle-tokens", "New tokens that start a training cycle.", WHOLE)]
CycleSeconds = Annotated[str | None, flag("--cycle-seconds", "Training time of one cycle.", REAL)]
Seed = Annotated[str | None, flag("--seed", "Seed of the first draft, the batches and the gate.", WHOLE)]
Capture = Annotated[bool | None, _switch("--capture/--no-capture", "Store hidden states.")]
CaptureSampleRate = Annotated[
    str | None, flag("--capture-sample-rate", "Share of the requests that is stored, 0 to 1.", REAL)
]
RetentionHours = Annotated[
    str | None,
    flag("--retention-hours", "Erase samples older than this; else they stay until overwritten.", REAL),
]
Training = Annotated[bool | None, _switch("--training/--no-training", "Train the draft.")]
Speculation = Annotated[str | None, flag("--speculation", "auto, on, off, or a fixed number of draft steps.")]
NoSpeculation = Annotated[bool | None, _switch("--no-speculation", "The same as --speculation off.")]


def speculation_mode(mode: str | None, off: bool | None) -> str | None:
    """--no-speculation is --speculation off. Raises UsageError where they contradict each other."""
    if off and mode not in (None, "off"):
        raise UsageError(f"--speculation {mode} and --no-speculation contradict each other")
    return "off" if off else mode
