"""What can be wrong with the values of settings, whatever the machine: the same for every command that reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tide_cli.drafts.fit import TargetFacts, lacks, misfit, tensor_names
from tide_cli.engine.passthrough import check_sglang_arguments
from tide_cli.errors import UsageError
from tide_cli.hardware.cores import check_cores
from tide_cli.hardware.gpus import check_gpus
from tide_cli.hardware.plan_settings import target_shape
from tide_cli.json_files import read_object
from tide_cli.paths import checked
from tide_cli.settings import Settings
from tide_cli.spool.folder import check_size
from tide_cli.spool.layout import RowLayout
from tide_cli.targets import Target, resolve_target

_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def check_values(settings: Settings) -> Target:
    """The target that is named. Raises UsageError for a value that a start would refuse on every machine."""
    checked(settings.paths)
    target = resolve_target(settings.target, settings.paths)
    _check_draft(settings.draft, target)
    captures = settings.speculates and settings.capture
    check_sglang_arguments(settings.sglang_arguments, speculation=settings.speculates, capture=captures)
    for flag, text in (
        ("--gpus", settings.gpus),
        ("--serve-gpus", settings.serve_gpus),
        ("--train-gpus", settings.train_gpus),
    ):
        check_gpus(flag, text)
    check_cores("--serve-cores", settings.serve_cores)
    check_cores("--train-cores", settings.train_cores)
    if settings.metrics_port == settings.port:
        raise UsageError(f"metrics_port {settings.metrics_port} is the engine's --port", remedy="choose another")
    if captures:
        _check_spool_size(settings, target)
    _check_shape(settings, target)
    return target


def _check_shape(settings: Settings, target: Target) -> None:
    """What SGLang would end with an error for, after it has begun to load the target."""
    shape = target_shape(target)
    if shape is None:
        return
    longer = os.environ.get(_LONGER, "").lower() in ("true", "1", "yes", "y")
    if (settings.context_length or 0) > shape.context_length and not longer:
        raise UsageError(
            f"--context-length {settings.context_length}: {target.name} takes at most {shape.context_length} tokens",
            remedy=f"ask for less; with {_LONGER}=1 in the environment SGLang takes it all the same",
        )
    if settings.dtype == "float32" and shape.quantisation == "mxfp4":
        raise UsageError(
            f"--dtype float32: {target.name} cannot be served so",
            why="SGLang multiplies MXFP4 weights in 16 bits",
            remedy="leave --dtype out",
        )


def _check_spool_size(settings: Settings, target: Target) -> None:
    """A ring of the size that is asked for must hold a longest sample, whether there is a ring already or not."""
    shape = target_shape(target)
    if shape is not None and settings.spool_size is not None:
        layout = RowLayout(shape.hidden_size, target=target.name)
        check_size(layout, settings.spool_size, settings.max_sample_tokens)


def _check_draft(draft: str | None, target: Target) -> None:
    """A folder must hold a draft that fits; what is no folder and no path is left to the hub."""
    if draft is None:
        return
    folder = Path(draft).expanduser()
    if folder.is_dir():
        if why := _unfit(folder, target):
            raise UsageError(f"{draft} is not a draft", why=why, remedy="pass the folder of an EAGLE3 draft")
    elif draft.startswith((".", "/", "~")) or draft.count("/") != 1:
        raise UsageError(
            f"no draft at {draft}", remedy="pass a folder with config.json and model.safetensors, or a hub id"
        )


def _unfit(folder: Path, target: Target) -> str | None:
    """What can be told without torch: the rest is checked when the draft is taken into the store."""
    if not (folder / "config.json").is_file():
        return "it has no config.json"
    if not any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin")):
        return "it has no model.safetensors"
    config, facts = _json(folder / "config.json"), _facts(target)
    if config is None:
        return "its config.json is no JSON object"
    names = tensor_names(folder)
    return (misfit(config, facts) if facts else None) or (lacks(names, config) if names is not None else None)


def _facts(target: Target) -> TargetFacts | None:
    """Of a known target, or of one whose files are here."""
    if target.folder and (config := _json(target.folder / "config.json")):
        return TargetFacts.of(config)
    shape = target.known.shape if target.known else None
    return TargetFacts(shape.hidden_size, shape.vocab_size, shape.layers) if shape else None


def _json(file: Path) -> dict[str, Any] | None:
    try:
        return read_object(file)
    except (OSError, ValueError):
        return None
