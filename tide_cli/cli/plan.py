"""`tide gpus` and `tide plan`: what the machine has, and how an appliance would use it. Neither starts anything."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths, path_option, settings_for
from tide_cli.errors import UsageError, reason
from tide_cli.regular_files import read_named

if TYPE_CHECKING:
    from tide_cli.hardware.inventory import Inventory
    from tide_cli.paths import Paths


_EXAMPLES = "1xH200, 8xH100, 2xRTX-6000-Ada or 4xMI300X-4xMI250"
MachineFile = Annotated[
    Path | None, path_option("--inventory", f"Machine: a file (JSON), or {_EXAMPLES}; else this one.", "FILE")
]
_NO_SETTINGS = {"inventory", "no_speculation", "state_dir", "config", "json"}


@app.command()
def gpus(json: Json = False) -> None:
    """GPUs, cores and memory that TIDE may use here.

    With --json an inventory for `tide plan --inventory`.
    """
    from tide_cli.cli.plan_view import inventory_text

    inventory = this_machine(appliance_paths(None))
    if json:
        print_json(inventory.as_dict())
    else:
        print(inventory_text(inventory))


@app.command()
def plan(
    inventory: MachineFile = None,
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
    """How `tide up` would divide a machine.

    Devices, what their memory is for, known troubles, and the commands it would start. Nothing is started.
    """
    speculation = speculation_mode(speculation, no_speculation)
    wishes = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
    from tide_cli.cli.plan_view import plan_as_dict, plan_text
    from tide_cli.hardware.notes import disk_note, float32_note
    from tide_cli.hardware.plan_settings import plan_for, target_shape, troubles_of
    from tide_cli.spool.ring import RING_FILE
    from tide_cli.supervisor.planned_commands import planned_commands
    from tide_cli.supervisor.specs import spool_size as size_of
    from tide_cli.supervisor.specs import spool_size_ignored
    from tide_cli.supervisor.values import check_values

    settings = settings_for(state_dir, config, **wishes)
    wanted = check_values(settings)
    machine = read_machine(inventory) if inventory else this_machine(settings.paths)
    ignored = None if inventory else spool_size_ignored(settings)
    if inventory is None:  # a ring that is there stays
        settings = settings.model_copy(update={"spool_size": size_of(settings)})
    with another_machine_named("plan", inventory, settings.target):
        planned = plan_for(settings, wanted, machine)
    if not planned.serve.gpus and (note := float32_note(target_shape(wanted), planned.dtype)):
        planned = replace(planned, notes=(*planned.notes, note))
    if settings.speculates and settings.capture and (inventory or not (settings.paths.spool / RING_FILE).is_file()):
        planned = replace(planned, notes=(*planned.notes, *disk_note(planned, machine.disk_free)))
    if ignored:
        planned = replace(planned, notes=(*planned.notes, ignored))
    commands = planned_commands(settings, wanted, planned)
    troubles = troubles_of(settings, wanted)
    if json:
        print_json(plan_as_dict(wanted.name, planned, commands, troubles))
    else:
        print(plan_text(wanted.name, planned, commands, troubles))


@contextmanager
def another_machine_named(command: str, inventory: Path | None, target: str) -> Iterator[None]:
    """Where a target does not fit into this machine, the error says how to ask about another one."""
    from tide_cli.hardware.examples import LARGE
    from tide_cli.hardware.refusals import DoesNotFit

    try:
        yield
    except DoesNotFit as error:
        if inventory is None:
            again = f"`tide {command} --target {shlex.quote(target)} --inventory {LARGE}`"
            error.remedy = f"{error.remedy}; {again} asks about another machine: a file, or {_EXAMPLES}"
        raise


def read_machine(named: Path) -> Inventory:
    """The inventory in a file, or the example of that name. Raises UsageError."""
    from tide_cli.hardware.examples import inventory_file
    from tide_cli.hardware.inventory_file import read_inventory

    try:
        text = read_named(inventory_file(named))
    except (OSError, ValueError) as error:
        remedy = f"`tide gpus --json` prints one; TIDE has {_EXAMPLES}"
        raise UsageError(f"cannot read the inventory {named}", why=reason(error), remedy=remedy) from None
    return read_inventory(text)


def this_machine(paths: Paths) -> Inventory:
    """This machine, with the room on the disk of the state folder, as the appliance of these paths would find it."""
    import shutil

    from tide_cli.supervisor.own_machine import own_inventory

    folder = paths.state
    while not folder.exists():
        folder = folder.parent
    return replace(own_inventory(paths), disk_free=shutil.disk_usage(folder).free)
