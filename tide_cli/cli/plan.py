"""`tide gpus` and `tide plan`: what the machine has, and how an appliance would use it. Neither starts anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json
from tide_cli.cli.where import Config, Json, StateDir, settings_for
from tide_cli.errors import UsageError

if TYPE_CHECKING:
    from tide_cli.hardware.inventory import Inventory
    from tide_cli.paths import Paths


def _flag(name: str, text: str) -> Any:
    return typer.Option(name, help=text, show_default=False)


@app.command()
def gpus(json: Json = False) -> None:
    """GPUs, cores and memory that TIDE may use here; with --json an inventory for `tide plan --inventory`."""
    from tide_cli.cli.plan_view import inventory_text
    from tide_cli.hardware.machine import take_inventory

    inventory = take_inventory()
    if json:
        print_json(inventory.as_dict())
    else:
        print(inventory_text(inventory))


@app.command()
def plan(
    target: Annotated[str | None, _flag("--target", "Known target, checkpoint folder or hub id.")] = None,
    inventory: Annotated[Path | None, _flag("--inventory", "Machine to plan for (JSON); else this one.")] = None,
    draft: Annotated[str | None, _flag("--draft", "EAGLE3 draft to start with: folder or hub id.")] = None,
    gpus: Annotated[str | None, _flag("--gpus", "GPUs that may be used, e.g. 0-3, or cpu.")] = None,
    serve_gpus: Annotated[str | None, _flag("--serve-gpus", "GPUs of the engine, e.g. 0,1.")] = None,
    train_gpus: Annotated[str | None, _flag("--train-gpus", "GPU of the trainer, or cpu.")] = None,
    tp: Annotated[int | None, _flag("--tp", "GPUs one copy of the target is spread over.")] = None,
    serve_cores: Annotated[str | None, _flag("--serve-cores", "CPU cores of the engine, e.g. 0-3.")] = None,
    train_cores: Annotated[str | None, _flag("--train-cores", "CPU cores of the trainer.")] = None,
    context_length: Annotated[int | None, _flag("--context-length", "Longest sequence, in tokens.")] = None,
    max_running_requests: Annotated[
        int | None, _flag("--max-running-requests", "Requests decoded together at most.")
    ] = None,
    spool_size: Annotated[str | None, _flag("--spool-size", "Size of the spool, e.g. 2GiB.")] = None,
    training: Annotated[
        bool | None, typer.Option("--training/--no-training", help="Train the draft.", show_default=False)
    ] = None,
    speculation: Annotated[
        bool | None, typer.Option("--speculation/--no-speculation", help="Decode with a draft.", show_default=False)
    ] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """How `tide up` would divide a machine: devices, memory, and the commands it would start."""
    wishes = {
        name: value for name, value in locals().items() if name not in ("inventory", "state_dir", "config", "json")
    }
    from tide_cli.cli.plan_view import plan_as_dict, plan_text
    from tide_cli.hardware.plan_settings import plan_for
    from tide_cli.supervisor.planned_commands import planned_commands
    from tide_cli.targets import resolve_target

    settings = settings_for(state_dir, config, **wishes)
    wanted = resolve_target(settings.target, settings.paths)
    machine = _read(inventory) if inventory else _this_machine(settings.paths)
    planned = plan_for(settings, wanted, machine)
    commands = planned_commands(settings, wanted, planned)
    if json:
        print_json(plan_as_dict(wanted.name, planned, commands))
    else:
        print(plan_text(wanted.name, planned, commands))


def _read(file: Path) -> Inventory:
    from tide_cli.hardware.inventory_file import read_inventory

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot read the inventory {file}", why=reason, remedy="`tide gpus --json` prints one"
        ) from None
    return read_inventory(text)


def _this_machine(paths: Paths) -> Inventory:
    import shutil
    from dataclasses import replace

    from tide_cli.supervisor.own_machine import own_inventory

    folder = paths.state
    while not folder.exists():
        folder = folder.parent
    return replace(own_inventory(paths), disk_free=shutil.disk_usage(folder).free)
