"""From settings and a target to a plan: finds the shapes, the rest is the planner's.

What cannot be read here is planned without: whether a checkpoint or a draft can be served is for the children to say.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tide_cli.errors import TideError
from tide_cli.hardware.inventory import Inventory
from tide_cli.hardware.plan import Plan
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.wishes import Wishes
from tide_cli.settings import Settings
from tide_cli.targets import DraftShape, Target, TargetShape, known_targets, read_draft_shape, read_target_shape
from tide_cli.targets.known import Trouble


def plan_for(settings: Settings, target: Target, inventory: Inventory, files: Path | None = None) -> Plan:
    """The plan of an appliance. files: the target's folder, where the caller knows more than its name.

    Raises UsageError as `make_plan` does.
    """
    plan = make_plan(
        inventory,
        target_shape(target, files),
        Wishes.of(settings),
        target=settings.target,
        draft=draft_shape(settings.draft),
        others={name: known.shape for name, known in known_targets().items() if known.shape},
    )
    return replace(plan, notes=(*plan.notes, *_recognised(settings, target)))


def troubles_of(settings: Settings, target: Target) -> list[Trouble]:
    """Known ones of the target and its draft, where they are known by name or recognised by their config.json."""
    known = target.known or target.like
    if known is None or not settings.speculates:
        return []
    draft = _known_draft(settings, target) or settings.draft
    if draft is None and target.known is None:  # a fresh one
        return [trouble for trouble in known.troubles if not trouble.drafts]
    return known.troubles_with(draft)


def _known_draft(settings: Settings, target: Target) -> str | None:
    """The hub id of the published draft whose shape the draft in a folder has."""
    known, shape = target.known or target.like, draft_shape(settings.draft)
    return known.draft_hub_id if shape and known and known.shape and known.shape.draft == shape else None


def _recognised(settings: Settings, target: Target) -> list[str]:
    notes = []
    if like := target.like:
        which = "is" if target.hub_id else "has the figures of"
        notes = [f"the target {which} {like.name}: it is served with {' '.join(like.sglang_arguments)}"]
        if settings.draft is None and settings.speculates and like.draft_hub_id:
            notes.append(f"the draft is a fresh one; the one published for {like.name}: --draft {like.draft_hub_id}")
    if draft := _known_draft(settings, target):
        notes.append(f"the draft has the figures of {draft}")
    return notes


def target_shape(target: Target, files: Path | None = None) -> TargetShape | None:
    """From the checkpoint's folder, or from configs/*.toml; None where neither tells."""
    if target.known:
        return target.known.shape
    folder = files or target.folder
    with suppress(TideError):
        if folder:
            return read_target_shape(folder)
    return target.like.shape if target.like and folder is None else None


def draft_shape(draft: str | None) -> DraftShape | None:
    """Of a draft in a folder; None: the target's usual one is planned for."""
    folder = Path(draft).expanduser() if draft else None
    with suppress(TideError):
        return read_draft_shape(folder) if folder and folder.is_dir() else None
    return None
