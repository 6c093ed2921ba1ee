"""What a config.json must say, so that SGLang and SpecForge build one and the same draft from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tide_cli.drafts.checks import publish_foreign
from tide_cli.drafts.config import check_config
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError
from tide_cli.training.draft_model import build_draft

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0,
}


def rope(kind: object, **more: object) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, **more}}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', and SGLang's draft knows silu alone"),
        ({"hidden_act": 3}, "hidden_act is 3"),
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2, and an EAGLE3 draft has one layer"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"attention_bias": True}, "attention_bias is True, and its layer has no biases"),
        ({"mlp_bias": True}, "mlp_bias is True, and its layer has no biases"),
        ({"bias": True}, "bias is True, and its layer has no biases"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is {'quant_method': 'fp8'}, and quant"),
        ({"compression_config": {"format": "x"}}, "compression_config is"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_is_neox_style": False}, "rope_is_neox_style is False"),
        ({"num_key_value_heads": 4}, "num_attention_heads 2 is no multiple of num_key_value_heads 4"),
        ({"num_attention_heads": 3}, "hidden_size 8 is no multiple of num_attention_heads 3"),
        ({"head_dim": 3}, "head_dim is 3, not an even number"),
        ({"pad_token_id": 32}, "pad_token_id is 32, no token of 32"),
        ({"rope_scaling": "x"}, "rope_scaling is 'x', not an object of numbers with a rope_type"),
        ({"rope_scaling": [1]}, "rope_scaling is [1]"),
        ({"rope_parameters": {"rope_type": [1]}}, "rope_parameters is of type [1], not one of default, linear"),
        (rope("longrope", factor=4.0), "rope_scaling is of type 'longrope', not one of default, linear"),
        (rope(None, type="linear", factor=2.0), "rope_scaling is of type missing"),
        (rope("linear"), "rope_scaling is of type linear, and its factor is missing, not a positive number"),
        (rope("linear", factor=0), "its factor is 0, not a positive number"),
        (rope("dynamic", factor=-2.0), "its factor is -2.0, not a positive number"),
        (rope("yarn", factor="x"), "its factor is 'x', not a positive number"),
        (rope("llama3"), "rope_scaling is of type llama3, and its factor is missing"),
        (rope("yarn", factor=4.0), "original_max_position_embeddings is missing"),
        (rope("yarn", **YARN | {"mscale": None}), "its mscale is missing"),
        (rope("yarn", **YARN, truncate=False), "rope_scaling has truncate False, which the trainer leaves out"),
        (rope("default", mrope_section=[1, 1]), "rope_scaling has mrope_section [1, 1]"),
        ({"rope_parameters": {"rope_theta": 0}}, "its rope_theta is 0, not a positive number"),
    ],
)
def test_what_no_engine_or_no_trainer_builds_is_refused_before_it_is_published(
    tmp_path: Path, make_draft: Callable[..., Path], config: dict[str, Any], words: str
) -> None:
    store = DraftStore(tmp_path / "drafts")
    target = {"hidden_size": 8, "vocab_size": 32}
    folder = make_draft(config=config)
    with pytest.raises(TideError) as caught:
        publish_foreign(folder, store, target="t", target_revision="r", target_config=target, remedy="do this")
    first, *rest = caught.value.lines()
    assert words in first
    assert rest == ["do this"]
    assert store.versions() == []


@pytest.mark.parametrize("name", ["hidden_act", "rms_norm_eps", "rope_theta", "max_position_embeddings"])
def test_null_is_no_value(name: str) -> None:
    with pytest.raises(TideError, match="its config") as caught:
        check_config({"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 32, name: None})
    assert f"{name} is missing" in caught.value.lines()[0]


@pytest.mark.parametrize(
    "config",
    [
        {"attention_bias": False, "mlp_bias": False, "quantization_config": None, "rope_scaling": None},
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {"rope_scaling": {}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        rope("dynamic", factor=2.0),
        rope("llama3", **LLAMA3),
        rope("yarn", **YARN),
    ],
)
def test_what_is_taken_is_built_by_the_trainer(make_draft: Callable[..., Path], config: dict[str, Any]) -> None:
    folder = make_draft(config=config | {"max_position_embeddings": 64})
    check_config(json.loads((folder / "config.json").read_text()))
    model = build_draft(folder / "config.json", torch.zeros(32, 8), dtype=torch.float32, attention="sdpa")
    assert model.midlayer.self_attn.rotary_emb.cos_cached.shape[-2:] == (84, 4)


def test_a_model_type_of_another_name_is_called_llama(tmp_path: Path, make_draft: Callable[..., Path]) -> None:
    store, said = DraftStore(tmp_path / "drafts"), []
    folder = make_draft(config={"model_type": None})
    target = {"hidden_size": 8, "vocab_size": 32}
    publish_foreign(
        folder, store, target="t", target_revision="r", target_config=target, remedy="do this", say=said.append
    )
    assert json.loads((store.path(0) / "config.json").read_text())["model_type"] == "llama"
    assert said == ["its model_type is called llama, as SGLang wants it"]
