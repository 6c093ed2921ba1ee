"""Child process `python -m tide_cli.supervisor.first_draft --draft DRAFT --config FILE`: a ready-made draft as v0000.

DRAFT is a folder or a hub id; FILE the trainer's configuration, which names target and store. Prints `say …` lines
while it works; errors go to stderr as `tide: …` lines.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tide_cli.child_words import complain, say
from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.errors import TideError
from tide_cli.targets.known import pinned_revision
from tide_cli.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

_REMEDY = "pass --draft with an EAGLE3 draft of this target, or none: TIDE then makes a fresh one"


def import_draft(draft: str, config: TrainingConfig) -> int:
    """Verify `draft` against the target and publish it; returns its version. Raises TideError naming what is wrong."""
    from tide_cli.drafts.checks import publish_foreign, read_json

    folder = Path(draft).expanduser()
    if not folder.is_dir():
        from tide_cli.targets.hub import download

        folder = download(draft, pinned_revision(draft), say)
    target = read_json(config.target / "config.json", _REMEDY)
    return publish_foreign(
        folder,
        DraftStore(config.drafts),
        target=config.target_name,
        target_revision=config.target_revision,
        target_config=target.get("text_config", target) | {"architectures": target.get("architectures")},
        remedy=_REMEDY,
        lend=lambda: _usual_head(config),
        say=lambda line: say(f"the draft {draft}: {line}"),
    )


def _usual_head(config: TrainingConfig) -> tuple[Tensor, Tensor]:
    """(ids [D], head [D, H]): the tokens that a fresh draft could propose, and the target's rows for them."""
    import torch

    from tide_cli.training.day_zero import draft_vocabulary, special_tokens
    from tide_cli.training.target_weights import TargetWeights

    head = TargetWeights.read(config.target, torch.bfloat16).head
    ids = draft_vocabulary(len(head), config.draft_vocab_size, special_tokens(config.target))
    return ids, head[ids]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tide_cli.supervisor.first_draft")
    parser.add_argument("--draft", required=True)
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args()
    try:
        version = import_draft(options.draft, TrainingConfig.from_json(options.config.read_text()))
    except TideError as error:
        complain(error)
        return int(error.exit_code)
    print(f"{options.draft} is {version_name(version)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
