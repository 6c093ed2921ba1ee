"""What can be wrong with the values of settings, whatever the machine: the same for every command that reads them."""

from __future__ import annotations

from pathlib import Path

from tide_cli.engine.passthrough import check_sglang_arguments
from tide_cli.errors import UsageError
from tide_cli.hardware.cores import check_cores
from tide_cli.hardware.gpus import check_gpus
from tide_cli.paths import checked
from tide_cli.settings import Settings
from tide_cli.targets import Target, resolve_target


def check_values(settings: Settings) -> Target:
    """The target that is named. Raises UsageError for a value that a start would refuse on every machine."""
    checked(settings.paths)
    target = resolve_target(settings.target, settings.paths)
    _check_draft_folder(settings.draft)
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
    return target


def _check_draft_folder(draft: str | None) -> None:
    """A folder must look like a draft; what is no folder and no path is left to the hub."""
    if draft is None:
        return
    folder = Path(draft).expanduser()
    if folder.is_dir():
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise UsageError(
                    f"{draft} is not a draft", why=f"it has no {name}", remedy="pass the folder of an EAGLE3 draft"
                )
    elif draft.startswith((".", "/", "~")) or draft.count("/") != 1:
        raise UsageError(
            f"no draft at {draft}", remedy="pass a folder with config.json and model.safetensors, or a hub id"
        )
