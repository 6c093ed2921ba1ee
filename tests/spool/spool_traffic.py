"""Made-up traffic whose every bit follows from a seed, so that any process can check what another one stored."""

from __future__ import annotations

import torch
from torch import Tensor

from tide_cli.spool.layout import RowLayout
from tide_cli.spool.samples import Sample

LAYOUT = RowLayout(hidden_size=8, page_tokens=4, target="made-up")
LONGEST = 24  # rows of a sample at most


def states(seed: int, length: int, hidden: int = LAYOUT.hidden_size) -> tuple[Tensor, Tensor]:
    """aux [length, 3H] and final [length, H] bfloat16 of arbitrary bits, NaNs included."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**15), 2**15, (length, 4 * hidden), dtype=torch.int16, generator=generator)
    rows = bits.view(torch.bfloat16)
    return rows[:, : 3 * hidden].contiguous(), rows[:, 3 * hidden :].contiguous()


def token_ids(seed: int, length: int) -> list[int]:
    """Token ids; each of them tells the seed and its position."""
    return [seed * 1000 + position for position in range(length)]


def bits(tensor: Tensor) -> Tensor:
    """The raw 16 bits of each value: NaNs compare equal to themselves."""
    return tensor.contiguous().view(torch.int16)


def is_exact(sample: Sample, length: int = 900) -> bool:
    """Whether a sample written from `states` and `token_ids` came back bit for bit."""
    seed, first = divmod(int(sample.tokens[0]), 1000)
    aux, final = states(seed, length)
    stored = slice(first, first + sample.info.tokens)
    return (
        sample.info.prefix_missing == first
        and sample.tokens.tolist() == token_ids(seed, length)[stored]
        and torch.equal(bits(sample.aux), bits(aux[stored]))
        and torch.equal(bits(sample.final), bits(final[stored]))
    )
