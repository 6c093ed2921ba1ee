"""Products with packed weights: right, the same for each row whatever stands beside it, and up to date after a swap."""

from __future__ import annotations

import pytest
import torch

from tide_cli.engine.cpu import packed_linear

SHAPES = [(960, 576), (576, 1536), (3072, 576)]  # of SmolLM2-135M


def layer(shape: tuple[int, int], dtype: torch.dtype) -> torch.nn.Linear:
    torch.manual_seed(0)
    made = torch.nn.Linear(shape[1], shape[0], bias=False, dtype=dtype).requires_grad_(False)
    packed_linear.pack(made)
    return made


@pytest.mark.parametrize("dtype", packed_linear.packed_dtypes())
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_in_every_company(shape: tuple[int, int], dtype: torch.dtype) -> None:
    linear = layer(shape, dtype)
    x = torch.randn(16, shape[1]).to(dtype)
    together = packed_linear.linear(linear, x, None)
    for rows in (1, 2, 3, 4, 5, 6, 8, 12):
        assert torch.equal(packed_linear.linear(linear, x[:rows], None), together[:rows])
        assert torch.equal(packed_linear.linear(linear, x[-rows:], None), together[-rows:])


@pytest.mark.parametrize("dtype", packed_linear.packed_dtypes())
def test_the_product_is_that_of_the_plain_weight(dtype: torch.dtype) -> None:
    linear = layer((960, 576), dtype)
    x, bias = torch.randn(5, 576).to(dtype), torch.randn(960).to(dtype)
    exact = x.double() @ linear.weight.double().T + bias.double()
    torch.testing.assert_close(
        packed_linear.linear(linear, x, bias).double(), exact, rtol=1e-2, atol=1e-5 if dtype == torch.float32 else 1e-1
    )


def test_a_changed_weight_counts_after_repack() -> None:
    linear = layer((64, 32), torch.float32)
    x = torch.randn(4, 32)
    before = packed_linear.linear(linear, x, None)
    linear.weight.mul_(2)
    assert torch.equal(packed_linear.linear(linear, x, None), before)
    packed_linear.repack(torch.nn.Sequential(linear))
    torch.testing.assert_close(packed_linear.linear(linear, x, None), 2 * before)


def test_what_cannot_be_packed_is_left_to_sglang() -> None:
    unpacked = torch.nn.Linear(8, 8)
    assert packed_linear.linear(unpacked, torch.randn(2, 8), None) is None
    half = layer((8, 8), torch.float32)
    assert packed_linear.linear(half, torch.randn(2, 8, dtype=torch.bfloat16), None) is None


def test_a_processor_that_cannot_pack_bfloat16_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "packed_dtypes", lambda: (torch.float32,))
    plain = layer((8, 8), torch.bfloat16)
    assert packed_linear.linear(plain, torch.randn(2, 8, dtype=torch.bfloat16), None) is None
