"""A ready-made draft becomes v0000, and where it shares the target's head the trainer can go on from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_target import Target

from tide_cli.drafts.tensors import read_draft, vocabulary_ids
from tide_cli.errors import TideError
from tide_cli.supervisor.first_draft import import_draft
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import build_draft, draft_tensors, load_draft
from tide_cli.training.target_weights import TargetWeights


def foreign(day_zero: Path, folder: Path, *without: str, **config: object) -> Path:
    """The draft in `day_zero` as another publisher would give it."""
    folder.mkdir()
    save_file(
        {name: tensor for name, tensor in read_draft(day_zero).items() if name not in without},
        folder / "model.safetensors",
    )
    values = json.loads((day_zero / "config.json").read_text()) | config
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in values.items() if value is not None})
    )
    return folder


def test_a_draft_without_a_head_can_be_trained_on(
    config: TrainingConfig, day_zero: Path, target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = foreign(day_zero, tmp_path / "shared", "lm_head.weight", "d2t", "t2d", draft_vocab_size=None)
    version = import_draft(str(shared), config)
    assert "it has no head and starts with the target's, for 280 tokens" in capsys.readouterr().out
    folder = config.drafts / f"v{version:04d}"
    tensors = read_draft(folder)
    weights = TargetWeights.read(target.folder, torch.float32)
    assert torch.allclose(tensors["lm_head.weight"].float(), weights.head[vocabulary_ids(tensors["d2t"])], rtol=1e-2)
    model = build_draft(folder / "config.json", weights.embedding, dtype=torch.float32, attention="sdpa")
    load_draft(model, tensors)
    assert draft_tensors(model).keys() == tensors.keys()


def test_the_engine_may_serve_as_long_a_context_as_the_targets(
    config: TrainingConfig, day_zero: Path, target: Target, tmp_path: Path
) -> None:
    short = foreign(day_zero, tmp_path / "short", max_position_embeddings=16)
    version = import_draft(str(short), config)
    longest = json.loads((target.folder / "config.json").read_text())["max_position_embeddings"]
    made = json.loads((config.drafts / f"v{version:04d}" / "config.json").read_text())
    assert (made["max_position_embeddings"], longest > 16) == (longest, True)


def test_a_draft_of_layers_that_the_target_has_not(config: TrainingConfig, day_zero: Path, tmp_path: Path) -> None:
    beyond = {"eagle_aux_hidden_state_layer_ids": [1, 2, 99]}
    with pytest.raises(TideError, match="does not belong to tiny") as caught:
        import_draft(str(foreign(day_zero, tmp_path / "beyond", eagle_config=beyond)), config)
    assert "three layers of the target's" in caught.value.lines()[0]
