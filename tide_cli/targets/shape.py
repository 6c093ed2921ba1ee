"""The shape of a target and of its draft: what their memory is computed from. Read from JSON alone, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object
from tide_cli.setting_values import shown

# A draft proposes tokens from a part of the target's vocabulary. 12,288 tokens cover 91-99 % of what a vocabulary of
# 49k is used for (measured); published drafts for the large vocabularies keep 32,000.
_DRAFT_VOCABULARY = 12_288
_DRAFT_VOCABULARY_OF_LARGE = 32_000
_LARGE = 65_536

WEIGHTS_INDEX = "model.safetensors.index.json"

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def draft_vocabulary_size(vocab_size: int) -> int:
    """Tokens that a fresh draft for a target with this vocabulary can propose."""
    return min(vocab_size, _DRAFT_VOCABULARY if vocab_size <= _LARGE else _DRAFT_VOCABULARY_OF_LARGE)


@dataclass(frozen=True)
class DraftShape:
    """A one-layer EAGLE3 draft as SGLang's LlamaForCausalLMEagle3 reads it; the embedding is the target's."""

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int  # tokens it can propose

    @property
    def parameters(self) -> int:
        """Trained weights: fc [H, 3H], attention on [token, state] (2H in), MLP, four norms, head [D, H]."""
        hidden = self.hidden_size
        attention = (self.heads + 2 * self.kv_heads) * self.head_dim * 2 * hidden + self.heads * self.head_dim * hidden
        mlp = 3 * self.intermediate_size * hidden
        return 3 * hidden * hidden + attention + mlp + 4 * hidden + self.vocab_size * hidden


@dataclass(frozen=True)
class TargetShape:
    """A target as its config.json and the sizes of its safetensors files describe it. Sizes in bytes."""

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    weight_bytes: int  # the safetensors files, as quantised on disk
    element_bytes: int = 2  # of an unquantised weight on disk
    sliding_layers: int = 0  # layers whose attention sees only a window of the last tokens
    experts: int = 0
    expert_intermediate_size: int = 0
    experts_per_token: int = 0
    sliding_window: int = 0  # tokens that the sliding layers see
    quantisation: str | None = None  # quant_method of config.json
    draft: DraftShape | None = None  # of the published draft; None: it has the target's own layer shape

    @property
    def parameters(self) -> int:
        """Weights of the target, from the bytes of its files: 4.25 bits for an MXFP4 expert's, else element_bytes."""
        packed = self.expert_parameters if self.quantisation == "mxfp4" else 0
        return packed + (self.weight_bytes - packed * 17 // 32) // self.element_bytes

    @property
    def expert_parameters(self) -> int:
        """Weights of the experts, without biases."""
        return self.layers * self.experts * 3 * self.hidden_size * self.expert_intermediate_size

    @property
    def stored_as(self) -> str:
        """The form of the weights on disk: 'mxfp4' or another quantisation, else 'bfloat16' or 'float32'."""
        return self.quantisation or {2: "bfloat16", 4: "float32"}[self.element_bytes]

    @property
    def usual_draft(self) -> DraftShape:
        """The draft the target is served with unless the user names another one."""
        return self.draft or DraftShape(
            self.hidden_size,
            self.intermediate_size,
            self.heads,
            self.kv_heads,
            self.head_dim,
            draft_vocabulary_size(self.vocab_size),
        )


def read_target_shape(folder: Path) -> TargetShape:
    """The shape of the checkpoint in `folder`. Raises TideError where config.json or the weights cannot be used."""
    try:
        config, text = read_config(folder)
        layer_types = text.get("layer_types") or []
        heads, hidden = whole_number(text, "num_attention_heads"), whole_number(text, "hidden_size")
        experts = _first_of(text, "num_local_experts", "num_experts") or 0
        inner = whole_number(text, "intermediate_size")
        quantisation = text.get("quantization_config") or config.get("quantization_config") or {}
        return TargetShape(
            layers=whole_number(text, "num_hidden_layers"),
            hidden_size=hidden,
            intermediate_size=inner,
            heads=heads,
            kv_heads=_first_of(text, "num_key_value_heads") or heads,
            head_dim=_head_dim(text, hidden, heads),
            vocab_size=whole_number(text, "vocab_size"),
            context_length=whole_number(text, "max_position_embeddings"),
            weight_bytes=_weight_bytes(folder),
            element_bytes=_BYTES.get(str(text.get("dtype") or text.get("torch_dtype")), 2),
            sliding_layers=layer_types.count("sliding_attention"),
            experts=experts,
            expert_intermediate_size=(_first_of(text, "moe_intermediate_size") or inner) if experts else 0,
            experts_per_token=(_first_of(text, "num_experts_per_tok", "experts_per_token") or 0) if experts else 0,
            sliding_window=_first_of(text, "sliding_window") or 0,
            quantisation=quantisation.get("quant_method"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unusable(folder, f"config.json: {reason(error)}") from None


def read_draft_shape(folder: Path) -> DraftShape:
    """The shape of the draft in `folder`, from its config.json. Raises TideError."""
    try:
        config = read_object(folder / "config.json")
        heads, hidden = whole_number(config, "num_attention_heads"), whole_number(config, "hidden_size")
        return DraftShape(
            hidden_size=hidden,
            intermediate_size=whole_number(config, "intermediate_size"),
            heads=heads,
            kv_heads=_first_of(config, "num_key_value_heads") or heads,
            head_dim=_head_dim(config, hidden, heads),
            vocab_size=whole_number(config, "draft_vocab_size"),
        )
    except (OSError, ValueError, KeyError) as error:
        raise TideError(f"{folder} is not an EAGLE3 draft", why=f"config.json: {reason(error)}") from None


def read_config(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(config.json of a checkpoint, the part of it that describes the language model). OSError or ValueError."""
    config = read_object(folder / "config.json")
    text = config.get("text_config", config)
    if not isinstance(text, dict):
        raise ValueError("text_config is no JSON object")
    return config, text


def whole_number(config: Mapping[str, Any], name: str) -> int:
    """A figure of a config.json. KeyError where it is missing, ValueError where it is no whole number above 0."""
    value = config.get(name)
    if value is None:
        raise KeyError(name)
    if type(value) is not int or not 0 < value < 2**31:
        raise ValueError(f"{name} is {shown(value)}, not a whole number above 0")
    return value


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    named = _first_of(config, "head_dim")
    if named is None and heads > hidden:
        raise ValueError(f"num_attention_heads is {heads}, more than hidden_size")
    return named or hidden // heads


def _first_of(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of these figures that is there and not null or 0."""
    return next((whole_number(config, name) for name in names if config.get(name) not in (None, 0)), None)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that the checkpoint's index names, there or not; without one, all. OSError, ValueError."""
    if not (index := folder / WEIGHTS_INDEX).is_file():
        return sorted(folder.glob("*.safetensors"))
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise ValueError("its weight_map names no files")
    return sorted({folder / name for name in shards.values()})


def _weight_bytes(folder: Path) -> int:
    size = sum(file.stat().st_size for file in weight_files(folder))
    if not size:
        raise _unusable(folder, "it has no safetensors file")
    return size


def _unusable(folder: Path, why: str) -> TideError:
    return TideError(
        f"the checkpoint in {folder} cannot be planned for",
        why=why,
        remedy="pass the folder of a language model checkpoint",
    )
