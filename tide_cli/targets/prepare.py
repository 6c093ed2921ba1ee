"""Makes a target's files ready and reads its shape. What needs torch or the network runs in a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.targets.locate import Target


@dataclass(frozen=True)
class PreparedTarget:
    """A target whose checkpoint lies in `folder`; the figures are those of its config.json."""

    name: str
    folder: Path
    revision: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    context_length: int
    sglang_arguments: tuple[str, ...] = ()
    draft_hub_id: str | None = None


def prepare_target(target: Target, paths: Paths, say: Callable[[str], None] = lambda line: None) -> PreparedTarget:
    """Convert or download the checkpoint where needed. `say` gets a line of progress now and then.

    Raises TideError with the child's own reason when that fails.
    """
    folder = target.folder
    if target.embedded or folder is None:
        folder = _run_child(target, paths, say)
    return describe(folder, target)


def describe(folder: Path, target: Target) -> PreparedTarget:
    """Read the shape of the checkpoint in `folder`. Raises TideError when config.json can't be used."""
    try:
        config = json.loads((folder / "config.json").read_text())
        text = config.get("text_config", config)
        return PreparedTarget(
            name=target.name,
            folder=folder,
            revision=_revision(folder, target),
            hidden_size=text["hidden_size"],
            vocab_size=text["vocab_size"],
            num_layers=text["num_hidden_layers"],
            context_length=text["max_position_embeddings"],
            sglang_arguments=target.known.sglang_arguments if target.known else (),
            draft_hub_id=target.known.draft_hub_id if target.known else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TideError(
            f"the checkpoint in {folder} cannot be served",
            why=f"config.json: {error!r}",
            remedy="pass the folder of a language model checkpoint",
        ) from None


def _revision(folder: Path, target: Target) -> str:
    if target.known and target.known.revision:
        return target.known.revision
    # a hub snapshot's folder is named by its commit
    return folder.name if target.hub_id else "local"


def _run_child(target: Target, paths: Paths, say: Callable[[str], None]) -> Path:
    command = [sys.executable, "-m", "tide_cli.targets", target.name, str(paths.cache)]
    if target.hub_id and not target.known:
        command[3] = target.hub_id
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        folder = None
        for line in child.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "folder":
                folder = Path(rest)
            elif kind == "say":
                say(rest)
        errors = child.stderr.read()
    if child.returncode or folder is None:
        lines = [line.removeprefix("tide: ") for line in errors.splitlines() if line.strip()]
        own = [line.removeprefix("tide: ") for line in errors.splitlines() if line.startswith("tide: ")]
        why = own[0] if own else (lines[-1] if lines else f"exit code {child.returncode}")
        raise TideError(f"target {target.name} could not be prepared", why=why, remedy=own[1] if len(own) > 1 else None)
    return folder
