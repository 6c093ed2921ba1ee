"""The few tensors of the target that a draft shares or starts from, read from its safetensors checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object

_EMBEDDING, _HEAD, _NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


@dataclass(frozen=True)
class TargetWeights:
    """embedding [V, H], head [V, H] (the embedding itself where the two are tied), norm [H]: the final one.

    config: see `read_config`.
    """

    embedding: Tensor
    head: Tensor
    norm: Tensor
    config: dict[str, Any]

    @classmethod
    def read(cls, folder: Path, dtype: torch.dtype) -> TargetWeights:
        """Raises TideError, naming the file or the tensor, where the checkpoint lacks something."""
        config = read_config(folder)
        files = _tensor_files(folder)
        embedding = _read(files, _EMBEDDING, folder).to(dtype)
        head = embedding if _HEAD not in files else _read(files, _HEAD, folder).to(dtype)
        return cls(embedding, head, _read(files, _NORM, folder).to(dtype), config)


def read_config(folder: Path) -> dict[str, Any]:
    """The target's config.json; for a target with a vision part, that of the text model. TideError."""
    config = _read_json(folder / "config.json")
    return config.get("text_config", config)


def read_last_layer(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors of the target's last layer, fp32, by their names inside the layer; {} unless all have these shapes.

    A layer of another kind (experts, another attention) is no error: a draft can then not start from it.
    """
    last = read_config(folder)["num_hidden_layers"] - 1
    files = _tensor_files(folder)
    found = {}
    for name, shape in shapes.items():
        ending = f"model.layers.{last}.{name}"
        full = [n for n in files if n == ending or n.endswith("." + ending)]
        if len(full) != 1:
            return {}
        with safe_open(files[full[0]], framework="pt") as file:
            tensor = file.get_tensor(full[0])
        if tuple(tensor.shape) != shape or not tensor.dtype.is_floating_point:
            return {}
        found[name] = tensor.float()
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise TideError(
            f"cannot read {path}", why=reason(error), remedy="give the target's checkpoint folder"
        ) from None


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor name -> file that holds it."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return {name: folder / file for name, file in _read_json(index)["weight_map"].items()}
    single = folder / "model.safetensors"
    try:
        with safe_open(single, framework="pt") as file:
            return dict.fromkeys(file.keys(), single)
    except (OSError, SafetensorError) as error:
        raise TideError(f"cannot read {single}", why=str(error), remedy="use a safetensors checkpoint") from None


def _read(files: dict[str, Path], name: str, folder: Path) -> Tensor:
    # Targets with a vision part put a prefix such as 'language_model.' in front.
    found = [name] if name in files else [n for n in files if n.endswith("." + name)]
    if len(found) != 1:
        raise TideError(f"the target in {folder} has no tensor {name}", remedy="this architecture is not supported yet")
    with safe_open(files[found[0]], framework="pt") as file:
        return file.get_tensor(found[0])
