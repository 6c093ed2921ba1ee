from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_target import HIDDEN, Target

from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import read_draft, vocab_map_hash
from tide_cli.errors import TideError
from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import draft_vocabulary, publish_day_zero, special_tokens


@given(st.integers(1, 500), st.integers(1, 600), st.lists(st.integers(0, 700), max_size=8))
def test_the_draft_vocabulary_is_the_lowest_ids_and_the_special_ones(
    vocabulary: int, size: int, special: list[int]
) -> None:
    kept = draft_vocabulary(vocabulary, size, special).tolist()
    assert kept == sorted(set(kept))
    assert len(kept) == min(size, vocabulary)
    assert kept[-1] < vocabulary
    others = [i for i in kept if i not in special]
    wanted = {i for i in special if i < vocabulary}
    assert wanted <= set(kept) or not others
    assert all(i in kept for i in range(max(others, default=0)))


def test_special_tokens_come_from_tokenizer_and_configuration(tmp_path: Path) -> None:
    added = [{"id": 7, "special": True}, {"id": 8, "special": False}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": 5}}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 4]}))
    assert special_tokens(tmp_path) == [3, 4, 5, 7]


def test_the_first_draft_has_sglangs_names_and_the_targets_head(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    tensors = read_draft(day_zero)
    layer = {
        "hidden_norm",
        "input_layernorm",
        "post_attention_layernorm",
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    }
    names = {f"midlayer.{name}.weight" for name in layer}
    assert tensors.keys() == names | {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"}
    assert tensors["midlayer.self_attn.q_proj.weight"].shape == (HIDDEN, 2 * HIDDEN)
    kept = tensors["t2d"].nonzero().flatten()
    assert torch.equal(kept, tensors["d2t"] + torch.arange(config.draft_vocab_size))
    assert torch.equal(tensors["lm_head.weight"], target.model.lm_head.weight.detach()[kept])
    description = json.loads((day_zero / "config.json").read_text())
    assert description["architectures"] == ["LlamaForCausalLMEagle3"]
    assert description["draft_vocab_size"] == config.draft_vocab_size
    assert "norm_output" not in description  # SGLang and SpecForge mean different things by it
    manifest = DraftStore(config.drafts).manifest(0)
    assert manifest.vocab_map_hash == vocab_map_hash(tensors["d2t"])
    assert manifest.gate is None


def test_weights_are_published_in_the_asked_precision(config: TrainingConfig, day_zero: Path) -> None:
    with safe_open(day_zero / "model.safetensors", "pt") as file:
        dtypes = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert dtypes.pop("d2t") == torch.int64
    assert dtypes.pop("t2d") == torch.bool
    assert set(dtypes.values()) == {torch.float32}


def test_a_store_with_drafts_is_left_alone(config: TrainingConfig, day_zero: Path) -> None:
    assert publish_day_zero(config) == 0
    assert DraftStore(config.drafts).versions() == [0]


def test_the_first_draft_starts_from_the_targets_last_layer(target: Target, day_zero: Path) -> None:
    tensors, last = read_draft(day_zero), target.model.model.layers[-1]
    assert torch.equal(tensors["midlayer.mlp.down_proj.weight"], last.mlp.down_proj.weight.detach())
    halves = tensors["midlayer.self_attn.v_proj.weight"].chunk(2, 1)
    assert torch.equal(halves[0] + halves[1], last.self_attn.v_proj.weight.detach())
    aux = torch.arange(3.0 * HIDDEN)
    assert torch.equal(tensors["fc.weight"] @ aux, aux[2 * HIDDEN :])


def test_a_target_of_another_kind_gives_a_random_layer_of_the_same_shape(
    target: Target, config: TrainingConfig, day_zero: Path, tmp_path: Path
) -> None:
    other = tmp_path / "experts"
    shutil.copytree(target.folder, other)
    weights = load_file(other / "model.safetensors")
    weights["model.layers.5.mlp.experts.gate_up_proj"] = weights.pop("model.layers.5.mlp.up_proj.weight")
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    expected = {name: tensor.shape for name, tensor in read_draft(day_zero).items()}
    publish_day_zero(replace(config, target=other, drafts=tmp_path / "other"))
    tensors = read_draft(tmp_path / "other" / "v0000")
    assert {name: tensor.shape for name, tensor in tensors.items()} == expected
    assert 0.01 < tensors["midlayer.mlp.down_proj.weight"].std() < 0.03


def test_odd_files_of_a_target_give_no_tokens_and_damaged_ones_are_named(tmp_path: Path) -> None:
    odd = [None, 3, {"special": True}, {"id": "4", "special": True}, {"id": -1, "special": True}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [*odd, {"id": 6, "special": True}]}))
    (tmp_path / "config.json").write_text(json.dumps({"text_config": [1]}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, None, True, 2.5]}))
    assert special_tokens(tmp_path) == [2, 6]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": {"a": 1}}))
    assert special_tokens(tmp_path) == [2]
    for content in ("", "[]", "[" * 100_000):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(TideError) as raised:
            special_tokens(tmp_path)
        assert str(tmp_path / "tokenizer.json") in raised.value.lines()[0]
