"""Whether an EAGLE3 draft fits a target, as far as config.json and the names of its tensors tell. Needs no torch.

SGLang 0.5.23 starts with drafts it cannot use: a tensor that is missing stays random, one that it does not know is left
out, and every request is answered while no proposed token is accepted. Others end the engine with the first request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.drafts.manifest import WEIGHTS_FILE
from tide_cli.json_files import json_object
from tide_cli.regular_files import check_regular

HEAD, MAP = "lm_head.weight", "d2t"
_AUX_STATES = 3
# of EAGLE 3.1 and of NVIDIA's later drafts: SGLang serves them, SpecForge 0.2.0 trains another model under these names
_NORMS = ("norm_before_fc", "fc_norm", "use_aux_norm", "norm_output")
_FINAL_BOUNDARY = "GptOssForCausalLM"  # the one architecture whose state after the last layer SGLang hands to a draft


@dataclass(frozen=True)
class TargetFacts:
    """What a draft must agree with. layers and architecture are None where they are not known."""

    hidden_size: int | None
    vocab_size: int | None
    layers: int | None = None
    architecture: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> TargetFacts:
        """From a target's config.json, which may hold that of a text model among others."""
        text, names = config.get("text_config"), config.get("architectures")
        text = text if isinstance(text, Mapping) else config
        architecture = names[0] if isinstance(names, list) and names else None
        return cls(text.get("hidden_size"), text.get("vocab_size"), text.get("num_hidden_layers"), architecture)


def misfit(config: Mapping[str, Any], target: TargetFacts) -> str | None:
    """Why the draft with this config.json can't be served or trained beside the target; None where nothing speaks
    against it."""
    if "speculators_model_type" in config:
        return (
            "it is in the format of vLLM's speculators, which SGLang does not read; take the EAGLE3 folder that it was "
            "converted from, or export it as one (LlamaForCausalLMEagle3)"
        )
    for name in ("hidden_size", "vocab_size"):
        if config.get(name) != getattr(target, name):
            return f"its {name} is {config.get(name)}, the target's {getattr(target, name)}"
    eagle = _eagle_config(config)
    if norms := [name for name in _NORMS if config.get(name) or eagle.get(name)]:
        return f"it normalises hidden states ({norms[0]}), which TIDE cannot train: plain EAGLE3 drafts only"
    if not eagle.get("use_aux_hidden_state", True):
        return "it reads the target's last hidden state, not those of three layers (use_aux_hidden_state is false)"
    if (wide := config.get("target_hidden_size")) not in (None, target.hidden_size):
        return f"its target_hidden_size is {wide}, the target's hidden_size {target.hidden_size}"
    if config.get("tie_word_embeddings"):
        return "it has no head of its own (tie_word_embeddings)"
    return _wrong_layers(config, target)


def _wrong_layers(config: Mapping[str, Any], target: TargetFacts) -> str | None:
    ids = _eagle_config(config).get("eagle_aux_hidden_state_layer_ids")
    count = config.get("num_aux_hidden_states") or (len(ids) if isinstance(ids, list) and ids else _AUX_STATES)
    if not isinstance(count, int):
        return f"its num_aux_hidden_states is {repr(count)[:50]}, not a number"
    if count != _AUX_STATES:
        return f"it reads {count} hidden states of the target, TIDE stores {_AUX_STATES}"
    if not ids:
        return None
    if not isinstance(ids, list) or any(not isinstance(i, int) or isinstance(i, bool) for i in ids):
        return f"its eagle_aux_hidden_state_layer_ids are {ids!r}, not three numbers"
    if target.layers is not None:
        read = aux_layers(config, target.layers, target.architecture)
        last = target.layers if target.architecture in (_FINAL_BOUNDARY, None) else target.layers - 1
        if len(set(read)) != _AUX_STATES or min(read) < 0 or max(read) > last:
            return f"its eagle_aux_hidden_state_layer_ids {ids} are not three layers of the target's {target.layers}"
    return None


def aux_layers(config: Mapping[str, Any], layers: int, architecture: str | None = None) -> tuple[int, ...]:
    """The target's hidden states that SGLang 0.5.23 gives the draft with this config.json, in order.

    Number i is the input of layer i; `layers`, their count, is the output of the last one. A draft names outputs of
    layers, so 1 is added, except where gpt-oss is asked for its last output: then they are taken as they are
    (set_eagle3_layers_to_capture of each model).
    """
    ids = _eagle_config(config).get("eagle_aux_hidden_state_layer_ids")
    if not ids:
        return (2, layers // 2, layers - 3)
    if architecture in (_FINAL_BOUNDARY, None) and max(ids) == layers:
        return tuple(ids)
    return tuple(i + 1 for i in ids)


def same_aux_layers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two drafts of one target read the same hidden states: each can be trained on the other's samples."""
    return _named_layers(one) == _named_layers(other)


def _named_layers(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The ids that a draft names; None where it names none, or those that SGLang would take anyway."""
    ids = tuple(_eagle_config(config).get("eagle_aux_hidden_state_layer_ids") or ())
    return None if not ids or ids == _usual_ids(ids[-1] + 4) else ids


def _usual_ids(layers: int) -> tuple[int, ...]:
    return tuple(i - 1 for i in (2, layers // 2, layers - 3))


def lacks(names: Collection[str], config: Mapping[str, Any]) -> str | None:
    """Why a draft with these tensors would accept nothing; None where it has what it needs.

    One without head and without map is not meant here: it shares the target's head (see drafts.complete).
    """
    tokens = config.get("draft_vocab_size") or config.get("vocab_size")
    if MAP not in names and tokens != config.get("vocab_size"):
        return f"it has no {MAP}: nothing says which of the target's tokens its {tokens} are"
    if MAP in names and HEAD not in names:
        return f"it has no {HEAD}: SGLang would start with a random one, and accept nothing"
    return None


def tensor_names(folder: Path) -> set[str] | None:
    """Names of the tensors in a draft's model.safetensors, from its header; None where that cannot be read."""
    try:
        return set(tensors_header(folder / WEIGHTS_FILE)) - {"__metadata__"}
    except (OSError, ValueError):
        return None


def tensors_header(path: Path) -> dict[str, Any]:
    """The header of a file of safetensors, without the library and what it imports. OSError, ValueError."""
    check_regular(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json_object(file.read(min(length, 2**24)).decode())


def _eagle_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("eagle_config")
    return found if isinstance(found, Mapping) else {}
