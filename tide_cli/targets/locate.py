"""From what the user typed after --target to where the checkpoint is, or will be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tide_cli.errors import UsageError, reason
from tide_cli.json_files import json_object
from tide_cli.paths import Paths
from tide_cli.targets.known import KnownTarget, known_targets
from tide_cli.targets.shape import WEIGHTS_INDEX, read_config, weight_files

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")  # what SGLang loads
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Target:
    """A target before its files are there. folder is None for a hub id: the hub's cache decides.

    like: the known target that a folder's config.json describes, or whose hub id was typed.
    """

    name: str
    folder: Path | None
    hub_id: str | None = None
    known: KnownTarget | None = None
    like: KnownTarget | None = None

    @property
    def sglang_arguments(self) -> tuple[str, ...]:
        found = self.known or self.like
        return found.sglang_arguments if found else ()

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
        _check_folder(folder)
        return Target(name=folder.resolve().name, folder=folder.resolve(), like=_like(folder, known))
    if wanted.startswith((".", "/", "~")):
        raise UsageError(f"there is no folder {wanted}", remedy="pass a checkpoint folder, a known name or a hub id")
    if _HUB_ID.fullmatch(wanted):
        like = next((target for target in known.values() if target.hub_id == wanted), None)
        return Target(name=wanted.replace("/", "--"), folder=None, hub_id=wanted, like=like)
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    raise UsageError(
        f"unknown target {wanted!r}",
        why=f"known are {', '.join(known)}",
        remedy=f"did you mean --target {near[0]}?" if near else "pass a known name, a checkpoint folder or a hub id",
    )


def _like(folder: Path, known: Mapping[str, KnownTarget]) -> KnownTarget | None:
    with suppress(OSError, ValueError):
        _, text = read_config(folder)
        return next((target for target in known.values() if target.describes(text)), None)
    return None


def _check_folder(folder: Path) -> None:
    """A checkpoint has a configuration and all of its weights: said now, and not minutes later by the engine."""
    missing = None
    if not (folder / "config.json").is_file():
        missing = "no config.json"
    elif not any(next(folder.glob(f"*{ending}"), None) for ending in _WEIGHTS):
        missing = f"no weights ({', '.join('*' + ending for ending in _WEIGHTS)})"
    if missing:
        raise UsageError(
            f"{folder} is not a checkpoint", why=f"it has {missing}", remedy="pass the folder of a checkpoint"
        )
    try:
        files = weight_files(folder)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} is not a checkpoint", why=f"{WEIGHTS_INDEX}: {reason(error)}", remedy="fetch it again"
        ) from None
    gone = [file.name for file in files if not file.is_file()]
    if lacks := gone or [f"the end of {file.name}" for file in files if _cut_short(file)]:
        more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
        raise UsageError(
            f"the checkpoint in {folder} is not whole",
            why=f"of its {len(files)} safetensors files it lacks {lacks[0]}{more}",
            remedy="fetch it again: what is there is kept",
        )


def _cut_short(file: Path) -> bool:
    """Whether a safetensors file ends before the tensors that its header names; what else it is, the engine says."""
    try:
        with file.open("rb") as opened:
            size, length = file.stat().st_size, int.from_bytes(opened.read(8), "little")
            if size < 8 + length:
                return True
            tensors = json_object(opened.read(min(length, 2**27)).decode())
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        return bool(size < 8 + length + max(ends, default=0))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return False
