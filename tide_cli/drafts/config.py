"""Whether a draft's config.json makes one and the same model in the engine and in the trainer. Needs no torch.

SGLang 0.5.23 and SpecForge 0.2.0 each have a LlamaForCausalLMEagle3 of their own, which takes what it knows of
transformers' LlamaConfig and leaves out the rest. Where they differ the trainer would train another model than the one
that is served; where one of them ends with an error, no engine or no trainer starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tide_cli.errors import TideError

_NO_BIAS = "its layer has no biases"
_PLAIN = "quantised drafts can be neither served nor trained here"
_WHOLE_HEADS = "the trainer rotates whole heads, in halves"
# name: what it must be, what it is where it is absent, and why
_ONLY: dict[str, tuple[Any, Any, str]] = {
    "hidden_act": ("silu", "silu", "SGLang's draft knows silu alone"),
    "num_hidden_layers": (1, None, "an EAGLE3 draft has one layer"),
    **dict.fromkeys(("attention_bias", "mlp_bias", "bias"), (False, False, _NO_BIAS)),
    **dict.fromkeys(("quantization_config", "compression_config"), (None, None, _PLAIN)),
    "partial_rotary_factor": (1, 1, _WHOLE_HEADS),
    "rope_is_neox_style": (True, True, _WHOLE_HEADS),
}
# what is built into the forward pass of a draft and is in none of its tensors
_BUILT_IN = ("rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "num_attention_heads")

# rope_type: the numbers without which one of the two ends with an error, or makes up one of its own
_ROPE_NEEDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
}
_MAY_BE_ZERO = ("mscale", "mscale_all_dim")
# what SGLang reads and SpecForge does not, and the value with which that makes no difference
_ROPE_OF_SGLANG = {
    **dict.fromkeys(("alpha", "mrope_section", "use_fope")),
    **dict.fromkeys(("attn_factor", "extrapolation_factor", "partial_rotary_factor", "truncate"), 1),
}


def check_config(config: Mapping[str, Any]) -> None:
    """Refuses a config.json from which no engine or no trainer builds a draft, or the two build different ones.
    TideError names the first value that is wrong."""
    for name, (wanted, default, why) in _ONLY.items():
        value = config.get(name, default)
        if value is not None or name in ("hidden_act", "num_hidden_layers"):
            _require(value == wanted, f"{name} is {_short(value)}, and {why}")
    for name in ("rms_norm_eps", "rope_theta", "max_position_embeddings"):
        whole = name == "max_position_embeddings"
        fits = _positive(value := config.get(name, 1)) and (isinstance(value, int) or not whole)
        _require(fits, f"{name} is {_short(value)}, not a positive {'whole ' * whole}number")
    hidden, heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    shared, head = size(config, "num_key_value_heads", heads), size(config, "head_dim", hidden // heads or 1)
    _require(hidden % heads == 0, f"hidden_size {hidden} is no multiple of num_attention_heads {heads}")
    _require(heads % shared == 0, f"num_attention_heads {heads} is no multiple of num_key_value_heads {shared}")
    _require(head % 2 == 0, f"head_dim is {head}, not an even number")
    padding, vocabulary = config.get("pad_token_id"), size(config, "vocab_size")
    fits = padding is None or (type(padding) is int and -vocabulary <= padding < vocabulary)
    _require(fits, f"pad_token_id is {_short(padding)}, no token of {vocabulary}")
    for name in ("rope_scaling", "rope_parameters"):
        if (rope := config.get(name)) is not None:
            _require(isinstance(rope, dict), f"{name} is {_short(rope)}, not an object of numbers with a rope_type")
            _check_rope(name, rope)


def _check_rope(name: str, rope: Mapping[str, Any]) -> None:
    kind = rope["rope_type"] if "rope_type" in rope else rope.get("type", "default")
    known = isinstance(kind, str) and kind in _ROPE_NEEDS
    _require(known, f"{name} is of type {_short(kind)}, not one of {', '.join(_ROPE_NEEDS)}")
    for part in (*_ROPE_NEEDS[kind], *({"rope_theta"} & rope.keys())):
        value = rope.get(part)
        fits = _positive(value) or (part in _MAY_BE_ZERO and type(value) in (int, float) and value == 0)
        _require(fits, f"{name} is of type {kind}, and its {part} is {_short(value)}, not a positive number")
    for part, without in _ROPE_OF_SGLANG.items():
        value = rope.get(part, without)
        _require(value == without, f"{name} has {part} {_short(value)}, which the trainer leaves out")


def other_build(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first name under which two config.json say something else about the forward pass; None where they agree."""
    return next((name for name in _BUILT_IN if one.get(name) != other.get(name)), None)


def size(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A positive number of the configuration; what is absent or null is the default where there is one."""
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise _wrong(f"{name} is missing" if value is None else f"{name} is {_short(value)}, not a positive number")


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")


def _short(value: Any) -> str:
    return "missing" if value is None else repr(value)[:50]


def _require(fits: bool, why: str) -> None:
    if not fits:
        raise _wrong(why)


def _wrong(why: str) -> TideError:
    return TideError("its config.json is not that of an EAGLE3 draft", why=why)
