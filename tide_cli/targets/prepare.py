"""What TIDE must know of a checkpoint, read from its config.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tide_cli.errors import UsageError, reason
from tide_cli.targets.locate import Target
from tide_cli.targets.shape import read_config, whole_number


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


def describe(folder: Path, target: Target) -> PreparedTarget:
    """Read the shape of the checkpoint in `folder`. Raises UsageError when config.json cannot be used."""
    try:
        _, text = read_config(folder)
        return PreparedTarget(
            name=target.name,
            folder=folder,
            revision=_revision(folder, target),
            hidden_size=whole_number(text, "hidden_size"),
            vocab_size=whole_number(text, "vocab_size"),
            num_layers=whole_number(text, "num_hidden_layers"),
            context_length=whole_number(text, "max_position_embeddings"),
            sglang_arguments=target.sglang_arguments,
            draft_hub_id=target.known.draft_hub_id if target.known else None,
        )
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"the checkpoint in {folder} cannot be served",
            why=f"config.json: {reason(error)}",
            remedy="pass the folder of a language model checkpoint",
        ) from None


def _revision(folder: Path, target: Target) -> str:
    if target.known and target.known.revision:
        return target.known.revision
    # a hub snapshot's folder is named by its commit
    return folder.name if target.hub_id else "local"
