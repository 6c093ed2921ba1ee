"""Targets: the models TIDE can serve. Known ones lie in configs/*.toml; any checkpoint folder or hub id will do."""

from tide_cli.targets.known import KnownTarget, known_targets
from tide_cli.targets.locate import Target, resolve_target
from tide_cli.targets.prepare import PreparedTarget, describe

__all__ = [
    "KnownTarget",
    "PreparedTarget",
    "Target",
    "describe",
    "known_targets",
    "resolve_target",
]
