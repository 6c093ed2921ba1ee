"""A draft made elsewhere, as TIDE's engine and trainer need it: what it learned is left as it is. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tide_cli.drafts.fit import HEAD, MAP, lacks
from tide_cli.drafts.manifest import CONFIG_FILE, WEIGHTS_FILE
from tide_cli.drafts.tensors import EMBEDDING_NAMES, WHOLE, read_draft, vocabulary_ids
from tide_cli.errors import TideError, reason

PICKLED_FILE = "pytorch_model.bin"
_ARCHITECTURE = "LlamaForCausalLMEagle3"

# (ids [D], head [D, H]): the tokens that a fresh draft for the target could propose, ascending, and their rows of the
# target's head
Lender = Callable[[], tuple[Tensor, Tensor]]


def read_any(folder: Path) -> dict[str, Tensor]:
    """The tensors of a draft from safetensors, else from a pickled file, of which nothing but tensors is taken.

    Without the embedding. TideError when neither can be read.
    """
    pickled = folder / PICKLED_FILE
    if (folder / WEIGHTS_FILE).is_file() or not pickled.is_file():
        return read_draft(folder)
    try:
        loaded = torch.load(pickled, map_location="cpu", weights_only=True)
    except (OSError, MemoryError) as error:
        raise _unreadable(pickled, reason(error)) from None
    except Exception:  # of many kinds: a damaged file can order anything of what reads it
        raise _unreadable(pickled, "it is damaged, or holds more than tensors") from None
    items = loaded.items() if isinstance(loaded, dict) else ()
    tensors = {str(name): item for name, item in items if isinstance(item, Tensor) and name not in EMBEDDING_NAMES}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or not tensor.is_cpu or tensor.is_quantized or tensor.is_nested:
            raise _unreadable(pickled, f"its tensor {name} is sparse, quantised or without values")
    return tensors


def _unreadable(path: Path, why: str) -> TideError:
    return TideError(f"cannot read {path}", why=why, remedy="use another draft")


def completed(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], *, context_length: int | None, lend: Lender | None
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    """Tensors and config.json with what follows from the rest or from the target, and a line for each such thing.

    context_length: the longest sequence of the target. SGLang ends with an error, after it has loaded the target, where
    a draft's max_position_embeddings is smaller. The rotary embedding has no parameters, so it may be raised; drafts
    that were published with 2048 by mistake then do as well as ever (SpecForge #271).
    lend: for a draft without a head, which is meant to share the target's (NVIDIA's do). It gets rows of it.
    """
    made, shape, notes = {_plain(name): tensor for name, tensor in tensors.items()}, dict(config), []
    if made.keys() != tensors.keys():
        notes.append("its one layer is called midlayer, as SpecForge wants it")
    if HEAD not in made and MAP not in made and lend is not None and lacks(made, shape) is None:
        ids, head = lend()
        made[HEAD], made[MAP] = head.to(made.get("fc.weight", head).dtype), ids - torch.arange(len(ids))
        notes.append(f"it has no head and starts with the target's, for {len(ids)} tokens")
    elif HEAD in made and MAP not in made and made[HEAD].shape[:1] == (shape.get("vocab_size"),):
        made[MAP] = torch.zeros(len(made[HEAD]), dtype=torch.int64)
        notes.append("it has no vocabulary map, and needs none: it can propose every token")
    if MAP in made and MAP not in tensors:
        shape["draft_vocab_size"] = len(made[MAP])
    usual = MAP in made and made[MAP].shape == (shape.get("draft_vocab_size"),) and made[MAP].dtype in WHOLE
    if usual and "t2d" not in made and isinstance(size := shape.get("vocab_size"), int):
        ids = vocabulary_ids(made[MAP])
        made["t2d"] = torch.zeros(size, dtype=torch.bool)
        made["t2d"][ids[(ids >= 0) & (ids < size)]] = True  # a wrong map is told by the checks
        notes.append("its t2d follows from d2t")
    longest = shape.get("max_position_embeddings")
    short = not isinstance(longest, int) or longest < (context_length or 0)
    if context_length is not None and short and _is_plain_rope(shape):
        shape["max_position_embeddings"] = context_length
        notes.append(f"its max_position_embeddings is raised from {longest} to the target's {context_length}")
    if shape.get("architectures") != [_ARCHITECTURE]:
        shape |= {"architectures": [_ARCHITECTURE], "model_type": "llama", "num_hidden_layers": 1}
        notes.append(f"its architecture is called {_ARCHITECTURE}, as SGLang wants it")
    elif shape.get("model_type") != "llama":  # SpecForge reads it as llama's whatever it says
        shape["model_type"] = "llama"
        notes.append("its model_type is called llama, as SGLang wants it")
    return made, shape, notes


def _is_plain_rope(config: Mapping[str, Any]) -> bool:
    """Whether no angle depends on the longest position, as it does for other kinds of scaling."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    plain = ("default", "llama3")
    return isinstance(scaling, dict) and scaling.get("rope_type", scaling.get("type", "default")) in plain


def _plain(name: str) -> str:
    """SGLang takes either name of the one layer; SpecForge has the second."""
    return name.replace("layers.0.", "midlayer.", 1) if name.startswith("layers.0.") else name


def write(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """model.safetensors and config.json into an existing folder."""
    # copies, as tensors of a pickled file may share memory and safetensors has no way to say so
    apart = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(apart, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(dict(config), indent=1, sort_keys=True) + "\n")
