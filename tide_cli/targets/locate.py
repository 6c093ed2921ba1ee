"""From what the user typed after --target to where the checkpoint is, or will be."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from tide_cli.errors import UsageError
from tide_cli.paths import Paths
from tide_cli.targets.known import KnownTarget, known_targets

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Target:
    """A target before its files are there. folder is None for a hub id: the hub's cache decides."""

    name: str
    folder: Path | None
    hub_id: str | None = None
    known: KnownTarget | None = None

    @property
    def embedded(self) -> bool:
        return self.known is not None and self.known.gguf_file is not None


def resolve_target(wanted: str, paths: Paths) -> Target:
    """A known name, a folder with a config.json, or a hub id `owner/name`.

    Raises UsageError with the known names, the nearest first, for anything else.
    """
    known = known_targets()
    if wanted in known:
        target = known[wanted]
        folder = paths.embedded_target if target.gguf_file else None
        return Target(name=wanted, folder=folder, hub_id=target.hub_id, known=target)
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(
                f"{wanted} is not a checkpoint", why="it has no config.json", remedy="pass the folder of a checkpoint"
            )
        return Target(name=folder.resolve().name, folder=folder.resolve())
    if _HUB_ID.fullmatch(wanted) and not wanted.startswith("."):
        return Target(name=wanted.replace("/", "--"), folder=None, hub_id=wanted)
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    raise UsageError(
        f"unknown target {wanted!r}",
        why=f"known are {', '.join(known)}",
        remedy=f"did you mean --target {near[0]}?" if near else "pass a known name, a checkpoint folder or a hub id",
    )
