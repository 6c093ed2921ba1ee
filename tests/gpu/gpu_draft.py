"""A draft of the published shape: its configuration, random tensors, and a served one without SGLang."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tide_cli.drafts.checks import draft_shapes
from tide_cli.targets.shape import TargetShape
from tide_cli.training.day_zero import draft_config

BUFFERS = ("d2t", "t2d")


def target_config(target: TargetShape) -> dict[str, Any]:
    """config.json of a target, as far as the trainer reads it; the sizes of the layer are the draft's."""
    draft = target.usual_draft
    return {
        "model_type": "llama",
        "hidden_size": draft.hidden_size,
        "intermediate_size": draft.intermediate_size,
        "num_attention_heads": draft.heads,
        "num_key_value_heads": draft.kv_heads,
        "head_dim": draft.head_dim,
        "vocab_size": target.vocab_size,
        "num_hidden_layers": target.layers,
        "max_position_embeddings": target.context_length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000.0,
    }


def published_config(target: TargetShape) -> dict[str, Any]:
    """config.json of the target's draft."""
    return draft_config(target_config(target), target.usual_draft.vocab_size)


def random_tensors(target: TargetShape, seed: int, place: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every tensor of a draft by its published name, on the host. Made on `place`, where that is fast.

    Two seeds in a row have two vocabularies; the draft's must be at most half of the target's for that.
    """
    config = published_config(target)
    generator = torch.Generator(place).manual_seed(seed)
    tensors = {}
    for name, size in draft_shapes(config).items():
        if name not in BUFFERS:
            spread = 0.02 if len(size) > 1 else 0.1
            tensor = torch.randn(size, generator=generator, device=place) * spread + (len(size) == 1)
            tensors[name] = tensor.to("cpu", dtype)
    count = config["draft_vocab_size"]
    ids = torch.arange(count) * (config["vocab_size"] // count - seed % 2)
    marked = torch.zeros(config["vocab_size"], dtype=torch.bool)
    marked[ids] = True
    return tensors | {"d2t": ids - torch.arange(count), "t2d": marked}


class ServedDraft(nn.Module):
    """The layer as SGLang 0.5.23 serves it (sglang/srt/models/llama_eagle3.py): query, key and value in one matrix,
    gate and up in another, weights written in place by the published names.

    There is no KV cache: rows attend to those before them in the same call. Positions are left out.
    """

    def __init__(self, config: dict[str, Any], place: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim, self.eps = config["head_dim"], config["rms_norm_eps"]
        shapes = {name: size for name, size in draft_shapes(config).items() if name not in BUFFERS}
        joined = {
            "qkv": [f"midlayer.self_attn.{part}_proj.weight" for part in "qkv"],
            "gate_up": [f"midlayer.mlp.{part}_proj.weight" for part in ("gate", "up")],
        }
        self._views: dict[str, Tensor] = {}
        for joint, names in joined.items():
            rows, columns = sum(shapes[name][0] for name in names), shapes[names[0]][1]
            weight = self._weight(joint, (rows, columns), place, dtype)
            self._views |= zip(names, weight.split([shapes[name][0] for name in names]), strict=True)
        for name, size in shapes.items():
            if name not in self._views:
                self._views[name] = self._weight(name, size, place, dtype)

    def _weight(self, name: str, size: tuple[int, ...], place: torch.device, dtype: torch.dtype) -> Tensor:
        weight = nn.Parameter(torch.zeros(size, device=place, dtype=dtype), requires_grad=False)
        self.register_parameter(name.replace(".", "_"), weight)
        return weight.data

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """SGLang's weight loaders do the same: narrow a parameter to the part that is given, and copy into it."""
        for name, tensor in weights:
            if name not in BUFFERS:
                self._views[name].copy_(tensor)

    @torch.no_grad()
    def forward(self, aux: Tensor, embeds: Tensor) -> Tensor:
        """aux [k, 3H], embeds [k, H] -> logits [k, D]."""
        weights = self._views
        state = F.linear(aux, weights["fc.weight"])
        joined = torch.cat(
            [
                self._norm(embeds, "midlayer.input_layernorm.weight"),
                self._norm(state, "midlayer.hidden_norm.weight"),
            ],
            -1,
        )
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        parts = F.linear(joined, self.qkv).split([wide, narrow, narrow], -1)
        query, key, value = (part.view(len(aux), -1, self.head_dim).transpose(0, 1) for part in parts)
        key, value = (part.repeat_interleave(self.heads // self.kv_heads, 0) for part in (key, value))
        mixed = F.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)[0]
        state = state + F.linear(mixed.transpose(0, 1).flatten(1), weights["midlayer.self_attn.o_proj.weight"])
        inner = F.linear(self._norm(state, "midlayer.post_attention_layernorm.weight"), self.gate_up)
        gate, up = inner.chunk(2, -1)
        state = state + F.linear(F.silu(gate) * up, weights["midlayer.mlp.down_proj.weight"])
        return F.linear(self._norm(state, "norm.weight"), weights["lm_head.weight"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self._views[name], self.eps)
