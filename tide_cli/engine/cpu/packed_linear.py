"""Matrix products with weights packed once for oneDNN, so that verifying a few tokens costs about one.

`torch.nn.functional.linear` on a CPU lays the weight out anew in each call: four rows cost up to twice one row. A
product with a packed weight is flat over a few rows. Fewer than four rows are filled up to four: that is the fastest
shape of the kernel (measured with fp32: 29 ms against 38 ms for all products of SmolLM2-135M), and each row then comes
out with the same bits whatever rows stand beside it, which keeps speculative output equal to plain decoding.
"""

from __future__ import annotations

from functools import cache

import torch

_product = torch.ops.mkldnn._linear_pointwise.default

_PACKED = "_tide_packed_weight"
_MIN_ROWS = 4


@cache
def packed_dtypes() -> tuple[torch.dtype, ...]:
    """What oneDNN can pack on this processor; it raises for bfloat16 where there is no AVX-512."""
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return torch.float32, torch.bfloat16
    return (torch.float32,)


def pack(layer: torch.nn.Module) -> None:
    """Keep a packed copy of layer.weight [out, in]. Call again after the weight has been written."""
    weight = layer.weight.data
    if weight.dim() == 2 and weight.device.type == "cpu" and weight.dtype in packed_dtypes():
        setattr(layer, _PACKED, torch.ops.mkldnn._reorder_linear_weight(weight, _MIN_ROWS))


def ensure_packed(layer: torch.nn.Module) -> None:
    """Pack a layer that no loading step has packed: a head that is an embedding, or tied to one."""
    if not hasattr(layer, _PACKED) and hasattr(layer, "weight"):
        pack(layer)


def linear(layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    """x [rows, in] -> [rows, out] through the packed weight; None where there is none or the dtypes differ."""
    packed = getattr(layer, _PACKED, None)
    if packed is None or x.dtype != layer.weight.dtype or x.dim() != 2:
        return None
    rows = x.shape[0]
    if rows >= _MIN_ROWS:
        return _product(x, packed, bias, "none", [], "")
    filled = _filler(x.shape[1], x.dtype)
    filled[:rows].copy_(x)
    return _product(filled, packed, bias, "none", [], "")[:rows]


@cache
def _filler(width: int, dtype: torch.dtype) -> torch.Tensor:
    """[4, width] to fill few rows up in; what its other rows hold does not matter. For the scheduler's thread alone."""
    return torch.zeros(_MIN_ROWS, width, dtype=dtype)


def repack(model: torch.nn.Module) -> None:
    """Pack anew every layer below `model` that has a packed copy: its weights were written by a swap."""
    for layer in model.modules():
        if hasattr(layer, _PACKED):
            pack(layer)
