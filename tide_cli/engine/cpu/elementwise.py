"""Rotary embedding and RMS norm in few torch calls: on one core a decode step is half dispatch, half arithmetic.

Both replace SGLang's `forward_native` where the case is the plain one; the same values up to rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


class RotationTable:
    """cos and signed sin [tokens, 1, head] of the positions last seen: every layer of a forward asks for the same."""

    def __init__(self) -> None:
        self._positions: torch.Tensor | None = None
        self._version = -1
        self._dtype: torch.dtype | None = None
        self._table: tuple[torch.Tensor, torch.Tensor] | None = None

    def look_up(self, rope, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        # the draft advances its positions in place: the same tensor counts only in the same version
        fresh = positions is self._positions and positions._version == self._version and dtype == self._dtype
        if not fresh:
            cos, sin = rope.cos_sin_cache.index_select(0, positions.flatten()).to(dtype).chunk(2, dim=-1)
            cos, sin = torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1)
            self._positions, self._version, self._dtype = positions, positions._version, dtype
            self._table = cos, sin
        return self._table


def rotary_embedding(original, rope, positions, query, key, offsets=None, fused_set_kv_buffer_arg=None):
    """query [tokens, heads*head], key [tokens, kv_heads*head] -> both rotated by their positions."""
    plain = offsets is None and fused_set_kv_buffer_arg is None and rope.is_neox_style
    if not plain or rope.rotary_dim != rope.head_size or hasattr(rope, "sin_cos_cache"):
        return original(rope, positions, query, key, offsets, fused_set_kv_buffer_arg)
    if not hasattr(rope, "_tide_rotation"):
        rope._tide_rotation = RotationTable()
    cos, sin = rope._tide_rotation.look_up(rope, positions, query.dtype)
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    size = cos.shape[-1]
    heads = x.reshape(x.shape[0], -1, size)
    return torch.addcmul(heads * cos, torch.roll(heads, size // 2, -1), sin).view(x.shape)


def rms_norm(original, norm, x, residual=None, post_residual_addition=None, quant_linear=None):
    """x [..., H], residual [..., H] or None -> normed x, and x + residual where there is one."""
    plain = (
        post_residual_addition is None
        and norm.variance_size_override is None
        and norm.override_orig_dtype is None
        and not norm.fp32_residual
        and norm.weight.dtype == x.dtype
    )
    if not plain:
        return original(norm, x, residual, post_residual_addition, quant_linear)
    if residual is not None:
        x = x + residual
    normed = F.rms_norm(x, (norm.hidden_size,), norm.weight, norm.variance_epsilon)
    return normed if residual is None else (normed, x)
