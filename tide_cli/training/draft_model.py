"""The draft as a SpecForge module: built from a draft folder or from tensors, sharing the target's embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from tide_cli.errors import TideError

if TYPE_CHECKING:
    from specforge.modeling.draft import Eagle3DraftModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BUFFERS = ("d2t", "t2d")


def build_draft(config_file: Path, embedding: Tensor, *, dtype: torch.dtype, attention: str) -> Eagle3DraftModel:
    """A LlamaForCausalLMEagle3 as `config_file` describes it, with random weights and `embedding` [V, H], frozen.

    `attention` is SpecForge's name of the backend: 'sdpa' or 'flex_attention'.
    """
    # here, because importing them takes seconds, and whoever only writes a draft builds none
    from specforge.modeling.auto import AutoDraftModel, AutoDraftModelConfig

    from tide_cli.training.specforge_cpu import prepare_specforge

    prepare_specforge()
    config = AutoDraftModelConfig.from_file(str(config_file))
    model = AutoDraftModel.from_config(config, attention_backend=attention)
    if embedding.shape != model.embed_tokens.weight.shape:
        shape = tuple(model.embed_tokens.weight.shape)
        why = f"its embedding is {shape}, the target's {tuple(embedding.shape)}"
        raise TideError(f"the draft in {config_file.parent} does not fit the target", why=why)
    model.embed_tokens.weight = torch.nn.Parameter(embedding, requires_grad=False)
    for parameter in model.parameters():  # not model.to(): the rotary tables stay in fp32
        parameter.data = parameter.data.to(embedding.device, dtype)
    return model.to(embedding.device)


def draft_tensors(model: Eagle3DraftModel) -> dict[str, Tensor]:
    """Every tensor of a published draft, detached, by the names that SGLang loads; the embedding is the target's."""
    return {name: t.detach() for name, t in model.state_dict().items() if not name.startswith("embed_tokens")}


@torch.no_grad()
def load_draft(model: Eagle3DraftModel, tensors: dict[str, Tensor]) -> None:
    """Copy a draft's tensors in, in place. Raises TideError naming the first that is missing, unknown or misshapen."""
    own = draft_tensors(model)
    if odd := sorted(own.keys() ^ tensors.keys()):
        raise TideError(f"the draft's tensors do not fit its configuration: {odd[0]} is missing or unknown")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise TideError(f"the draft's tensor {name} is {tuple(tensor.shape)}, expected {tuple(own[name].shape)}")
        own[name].copy_(tensor)


def write_draft(folder: Path, tensors: dict[str, Tensor], config: dict[str, object], dtype: torch.dtype) -> None:
    """model.safetensors (weights in `dtype`, d2t int64, t2d bool) and config.json, as SGLang 0.5.23 reads them.

    Writes into an existing private folder; making the result visible and durable is the draft store's part.
    TideError where the disk does not take it.
    """
    cast = {n: t.cpu() if n in BUFFERS else t.to("cpu", dtype) for n, t in tensors.items()}
    config = {**config, "torch_dtype": str(dtype).removeprefix("torch.")}
    try:
        save_file({n: t.contiguous() for n, t in cast.items()}, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    except (OSError, SafetensorError) as error:  # the latter is how the library reports a failed write
        why = getattr(error, "strerror", None) or str(error)
        raise TideError(f"cannot write the draft into {folder}", why=why, remedy="make room on that disk") from None
