"""From settings and a target to a plan: finds the shapes, the rest is the planner's.

What cannot be read here is planned without: whether a checkpoint or a draft can be served is for the children to say.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tide_cli.errors import TideError
from tide_cli.hardware.inventory import Inventory
from tide_cli.hardware.plan import Plan
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.wishes import Wishes
from tide_cli.settings import Settings
from tide_cli.targets import DraftShape, Target, TargetShape, known_targets, read_draft_shape, read_target_shape


def plan_for(settings: Settings, target: Target, inventory: Inventory, files: Path | None = None) -> Plan:
    """The plan of an appliance. files: the target's folder, where the caller knows more than its name.

    Raises UsageError as `make_plan` does.
    """
    return make_plan(
        inventory,
        target_shape(target, files),
        Wishes.of(settings),
        target=settings.target,
        draft=draft_shape(settings.draft),
        others={name: known.shape for name, known in known_targets().items() if known.shape},
    )


def target_shape(target: Target, files: Path | None = None) -> TargetShape | None:
    """From configs/*.toml, or from the checkpoint's folder; None where neither tells."""
    if target.known:
        return target.known.shape
    folder = files or target.folder
    with suppress(TideError):
        return read_target_shape(folder) if folder else None
    return None


def draft_shape(draft: str | None) -> DraftShape | None:
    """Of a draft in a folder; None: the target's usual one is planned for."""
    folder = Path(draft).expanduser() if draft else None
    with suppress(TideError):
        return read_draft_shape(folder) if folder and folder.is_dir() else None
    return None
