"""The CPU's rotary embedding and norm against SGLang's own, on random inputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

from tide_cli.engine.cpu.elementwise import RotationTable, rms_norm, rotary_embedding

TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}


def rope() -> SimpleNamespace:
    """The attributes of SGLang's class that `forward_native` reads; its constructor wants a whole server."""
    frequencies = 1e5 ** (-torch.arange(0, 64, 2) / 64)
    angles = torch.outer(torch.arange(512.0), frequencies)
    made = SimpleNamespace(
        head_size=64, rotary_dim=64, is_neox_style=True, cos_sin_cache=torch.cat((angles.cos(), angles.sin()), -1)
    )
    made._apply_rotary_emb_wrapped = neox
    return made


def neox(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox_style: bool) -> torch.Tensor:
    from sglang.srt.layers.rotary_embedding.utils import apply_rotary_emb

    return apply_rotary_emb(x, cos, sin, is_neox_style)


def refuse(*_: object) -> None:
    raise AssertionError("the plain case must not fall back")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_is_sglangs(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = rope()
    query, key = torch.randn(7, 9 * 64).to(dtype), torch.randn(7, 3 * 64).to(dtype)
    positions = torch.randint(0, 500, (7,))
    for _ in range(2):  # the second time from the table
        got = rotary_embedding(refuse, layer, positions, query, key)
        want = RotaryEmbedding.forward_native(layer, positions, query, key)
        torch.testing.assert_close(got, want, **TOLERANCE[dtype])


def test_positions_advanced_in_place_are_looked_up_again() -> None:
    layer, table = rope(), RotationTable()
    positions = torch.tensor([3, 4])
    table.look_up(layer, positions, torch.float32)
    positions.add_(1)
    cos, _ = table.look_up(layer, positions, torch.float32)
    torch.testing.assert_close(cos[0, 0, :32], layer.cos_sin_cache[4, :32])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_residual", [False, True])
def test_norm_is_sglangs(dtype: torch.dtype, with_residual: bool) -> None:
    torch.manual_seed(0)
    norm = SimpleNamespace(
        hidden_size=96,
        weight=torch.randn(96).to(dtype),
        variance_epsilon=1e-5,
        variance_size_override=None,
        override_orig_dtype=None,
        fp32_residual=False,
        cast_x_before_out_mul=False,
    )
    x = torch.randn(5, 96).to(dtype)
    residual = torch.randn(5, 96).to(dtype) if with_residual else None
    got = rms_norm(refuse, norm, x, residual)
    torch.testing.assert_close(got, RMSNorm.forward_native(norm, x, residual), **TOLERANCE[dtype])
