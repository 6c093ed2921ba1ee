"""The draft that an appliance without one starts with: shaped after the target and lent as much of it as fits.

Nothing is known of the traffic yet, so the draft's vocabulary is chosen by id: a byte-pair tokenizer numbers its tokens
in the order of their merges, most frequent first. The special tokens end every answer and are kept whatever their id.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tide_cli.drafts.checks import read_json
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocab_map_hash
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import DTYPES, write_draft
from tide_cli.training.target_weights import TargetWeights, read_last_layer

_COPIED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "vocab_size",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)

# these see the next token's embedding beside the hidden state
_DOUBLED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")


def publish_day_zero(config: TrainingConfig) -> int:
    """Make and publish v0000 where the draft store is empty; returns the newest version in the store."""
    store = DraftStore(config.drafts)
    if (latest := store.latest()) is not None:
        return latest
    dtype = DTYPES[config.dtype]
    target = TargetWeights.read(config.target, torch.float32)
    kept = draft_vocabulary(target.config["vocab_size"], config.draft_vocab_size, special_tokens(config.target))
    shape = draft_config(target.config, len(kept))
    layer = read_last_layer(config.target, layer_shapes(shape))
    tensors = day_zero_tensors(target, kept, config.seed, layer)
    with tempfile.TemporaryDirectory(prefix="tide-day-zero-") as folder:
        write_draft(Path(folder), tensors, shape, dtype)
        return store.publish(
            Path(folder),
            parent=None,
            target=config.target_name,
            target_revision=config.target_revision,
            vocab_map_hash=vocab_map_hash(tensors["d2t"]),
            samples=0,
            tokens=0,
            gate=None,
        )


def special_tokens(target: Path) -> list[int]:
    """Ids of the tokenizer's special tokens and the configured end-of-text tokens; [] where the folder names none.

    What can be no id is left out. TideError where a file that is there cannot be read.
    """
    ids: set[int] = set()
    for file, read in (("tokenizer.json", _added_tokens), ("config.json", _eos), ("generation_config.json", _eos)):
        if (target / file).is_file():
            found = read(read_json(target / file, "the target's files are damaged: fetch them again"))
            ids |= {token for token in found if type(token) is int and token >= 0}
    return sorted(ids)


def _added_tokens(tokenizer: dict[str, Any]) -> list[Any]:
    tokens = tokenizer.get("added_tokens")
    tokens = tokens if isinstance(tokens, list) else []
    return [token.get("id") for token in tokens if isinstance(token, dict) and token.get("special")]


def _eos(config: dict[str, Any]) -> list[Any]:
    text = config.get("text_config")
    eos = config.get("eos_token_id", text.get("eos_token_id") if isinstance(text, dict) else None)
    return eos if isinstance(eos, list) else [eos]


def draft_vocabulary(vocab_size: int, size: int, special: list[int]) -> Tensor:
    """Target ids the draft can propose [min(size, vocab_size)] int64, ascending: special tokens and the lowest ids."""
    size = min(size, vocab_size)
    kept = {i for i in special if i < vocab_size}
    kept = set(sorted(kept)[:size])
    lowest = 0
    while len(kept) < size:
        kept.add(lowest)
        lowest += 1
    return torch.tensor(sorted(kept), dtype=torch.int64)


def draft_config(target: dict[str, Any], draft_vocab_size: int) -> dict[str, Any]:
    """config.json of a one-layer EAGLE3 draft whose layer has the target's shape."""
    heads = target["num_attention_heads"]
    rope = target.get("rope_parameters") or {}
    return {name: target.get(name) for name in _COPIED if target.get(name) is not None} | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "num_key_value_heads": target.get("num_key_value_heads") or heads,
        "head_dim": target.get("head_dim") or target["hidden_size"] // heads,
        "hidden_act": "silu",
        "rope_theta": rope.get("rope_theta", target.get("rope_theta", 10000.0)),
        "draft_vocab_size": draft_vocab_size,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
    }


def layer_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a target layer that a draft of this configuration can start from."""
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key, hidden),
        "self_attn.v_proj.weight": (key, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def day_zero_tensors(target: TargetWeights, kept: Tensor, seed: int, layer: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the first draft, fp32. `kept` [D]: ascending target ids of its vocabulary.

    layer: the target's last layer, or {}. With it the draft's one layer takes its place: the highest of the three aux
    states goes in as it is, and the attention sees token and state in equal parts. That learns about twice as fast as
    random weights, which are what is left where the target's layer is of another kind. Head and norm are the target's.
    """
    config = draft_config(target.config, len(kept))
    hidden = config["hidden_size"]
    selected = torch.zeros(target.config["vocab_size"], dtype=torch.bool)
    selected[kept] = True
    own = _from_target(layer, hidden) if layer else _random_layer(config, seed)
    return own | {
        "norm.weight": target.norm.clone(),
        "lm_head.weight": target.head[kept].clone(),
        "d2t": kept - torch.arange(len(kept)),
        "t2d": selected,
    }


def _from_target(layer: Mapping[str, Tensor], hidden: int) -> dict[str, Tensor]:
    tensors = {f"midlayer.{name}": tensor.clone() for name, tensor in layer.items()}
    tensors["midlayer.hidden_norm.weight"] = layer["input_layernorm.weight"].clone()
    for name in _DOUBLED:
        tensors[f"midlayer.{name}"] = layer[name].repeat(1, 2) / 2
    return tensors | {"fc.weight": torch.cat([torch.zeros(hidden, 2 * hidden), torch.eye(hidden)], 1)}


def _random_layer(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = config["hidden_size"]

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * config["initializer_range"]

    tensors = {"fc.weight": random(hidden, 3 * hidden), "midlayer.hidden_norm.weight": torch.ones(hidden)}
    for name, shape in layer_shapes(config).items():
        if name in _DOUBLED:
            shape = (shape[0], 2 * hidden)
        tensors[f"midlayer.{name}"] = torch.ones(shape) if len(shape) == 1 else random(*shape)
    return tensors
