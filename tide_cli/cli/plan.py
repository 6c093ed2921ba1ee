"""`tide gpus` and `tide plan`: what the machine has, and how an appliance would use it. Neither starts anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json
from tide_cli.cli.setting_options import (
    Capture,
    ContextLength,
    Draft,
    Dtype,
    Gpus,
    MaxRunningRequests,
    NoSpeculation,
    ServeCores,
    ServeGpus,
    Speculation,
    SpoolSize,
    Target,
    Tp,
    TrainCores,
    TrainGpus,
    Training,
    speculation_mode,
)
from tide_cli.cli.where import Config, Json, StateDir, path_option, settings_for
from tide_cli.errors import UsageError, reason

if TYPE_CHECKING:
    from tide_cli.hardware.inventory import Inventory
    from tide_cli.paths import Paths


_NO_SETTINGS = {"inventory", "no_speculation", "state_dir", "config", "json"}


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
    inventory: Annotated[
        Path | None, path_option("--inventory", "Machine to plan for (JSON); else this one.", "FILE")
    ] = None,
    target: Target = None,
    draft: Draft = None,
    dtype: Dtype = None,
    context_length: ContextLength = None,
    max_running_requests: MaxRunningRequests = None,
    gpus: Gpus = None,
    serve_gpus: ServeGpus = None,
    train_gpus: TrainGpus = None,
    tp: Tp = None,
    serve_cores: ServeCores = None,
    train_cores: TrainCores = None,
    spool_size: SpoolSize = None,
    capture: Capture = None,
    training: Training = None,
    speculation: Speculation = None,
    no_speculation: NoSpeculation = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """How `tide up` would divide a machine: devices, memory, known troubles, and the commands it would start."""
    speculation = speculation_mode(speculation, no_speculation)
    wishes = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
    from tide_cli.cli.plan_view import plan_as_dict, plan_text
    from tide_cli.hardware.plan_settings import plan_for
    from tide_cli.supervisor.planned_commands import planned_commands
    from tide_cli.supervisor.values import check_values

    settings = settings_for(state_dir, config, **wishes)
    wanted = check_values(settings)
    machine = read_machine(inventory) if inventory else this_machine(settings.paths)
    planned = plan_for(settings, wanted, machine)
    commands = planned_commands(settings, wanted, planned)
    troubles = wanted.known.troubles_with(settings.draft) if wanted.known and settings.speculates else []
    if json:
        print_json(plan_as_dict(wanted.name, planned, commands, troubles))
    else:
        print(plan_text(wanted.name, planned, commands, troubles))


def read_machine(file: Path) -> Inventory:
    """The inventory in a file. Raises UsageError."""
    from tide_cli.hardware.inventory_file import read_inventory

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why, remedy = reason(error), "`tide gpus --json` prints one"
        raise UsageError(f"cannot read the inventory {file}", why=why, remedy=remedy) from None
    return read_inventory(text)


def this_machine(paths: Paths) -> Inventory:
    """This machine, with the room on its disk, as the appliance of these paths would find it."""
    import shutil
    from dataclasses import replace

    from tide_cli.supervisor.own_machine import own_inventory

    folder = paths.state
    while not folder.exists():
        folder = folder.parent
    return replace(own_inventory(paths), disk_free=shutil.disk_usage(folder).free)
