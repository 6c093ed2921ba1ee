"""Targets: the models TIDE can serve. Known ones lie in configs/*.toml; any checkpoint folder or hub id will do."""

from tide_cli.targets.known import KnownTarget, known_targets
from tide_cli.targets.locate import Target, resolve_target
from tide_cli.targets.prepare import PreparedTarget, describe
from tide_cli.targets.shape import DraftShape, TargetShape, read_draft_shape, read_target_shape

__all__ = [
    "DraftShape",
    "KnownTarget",
    "PreparedTarget",
    "Target",
    "TargetShape",
    "describe",
    "known_targets",
    "read_draft_shape",
    "read_target_shape",
    "resolve_target",
]
