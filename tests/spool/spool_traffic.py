"""Made-up traffic whose every bit follows from a seed, so that any process can check what another one stored."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tide_cli.spool.layout import RowLayout
from tide_cli.spool.recovery import scan
from tide_cli.spool.ring import Ring
from tide_cli.spool.samples import Sample

if TYPE_CHECKING:
    from torch import Tensor

LAYOUT = RowLayout(hidden_size=8, page_tokens=4, target="made-up")
LONGEST = 24  # rows of a sample at most


def states(seed: int, length: int, hidden: int = LAYOUT.hidden_size) -> tuple[Tensor, Tensor]:
    """aux [length, 3H] and final [length, H] bfloat16 of arbitrary bits, NaNs included; finite for seeds below 10."""
    import torch  # a child that is killed hundreds of times does without

    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**15), 2**15, (length, 4 * hidden), dtype=torch.int16, generator=generator)
    if seed < 10:
        bits[bits & 0x7F80 == 0x7F80] &= 0xFF  # no exponent left but its last bit
    rows = bits.view(torch.bfloat16)
    return rows[:, : 3 * hidden].contiguous(), rows[:, 3 * hidden :].contiguous()


def token_ids(seed: int, length: int) -> list[int]:
    """Token ids; each of them tells the seed and its position."""
    return [seed * 1000 + position for position in range(length)]


def bits(tensor: Tensor) -> Tensor:
    """The raw 16 bits of each value: NaNs compare equal to themselves."""
    import torch

    return tensor.contiguous().view(torch.int16)


def is_exact(sample: Sample, length: int = 900) -> bool:
    """Whether a sample written from `states` and `token_ids` came back bit for bit."""
    import torch

    seed, first = divmod(int(sample.tokens[0]), 1000)
    aux, final = states(seed, length)
    stored = slice(first, first + sample.info.tokens)
    return (
        sample.info.prefix_missing == first
        and sample.tokens.tolist() == token_ids(seed, length)[stored]
        and torch.equal(bits(sample.aux), bits(aux[stored]))
        and torch.equal(bits(sample.final), bits(final[stored]))
    )


def prefix_rows(tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """aux [T, 3H] and final [T, H] uint16 for a sequence: like a model's, a row depends on all tokens up to its own."""
    digest, rows = b"", []
    for token in tokens:
        digest = hashlib.blake2b(digest + token.to_bytes(4, "little"), digest_size=8 * LAYOUT.hidden_size).digest()
        rows.append(digest)
    words = np.frombuffer(b"".join(rows), "<u2").reshape(len(rows), 4 * LAYOUT.hidden_size)
    words = np.where(words & 0x7F80 == 0x7F80, words & 0x80FF, words)  # finite, so that an import takes them
    return words[:, : 3 * LAYOUT.hidden_size], words[:, 3 * LAYOUT.hidden_size :]


def is_of(sample: Sample, text: Sequence[int]) -> bool:
    """Whether the sample holds the rows of `prefix_rows(text)` for the positions it says it has."""
    stored = slice(sample.info.prefix_missing, sample.info.prefix_missing + sample.info.tokens)
    aux, final = prefix_rows(text[: stored.stop])
    return (
        sample.tokens.tolist() == list(text[stored])
        and np.array_equal(bits(sample.aux).numpy().view("<u2"), aux[stored])
        and np.array_equal(bits(sample.final).numpy().view("<u2"), final[stored])
    )


def leavings(folder: Path) -> int:
    """Values other than 0 in rows of the ring that belong to no sample."""
    ring = Ring.open(folder)
    unused = np.ones(len(ring.tokens), bool)
    for info in scan(ring):
        unused[ring.rows_of(info.pages, info.prefix_missing, info.tokens)] = False
    found = sum(np.count_nonzero(getattr(ring, name)[unused]) for name in ("tokens", "checks", "aux", "final"))
    ring.close()
    return int(found)


class Conversations:
    """Requests whose prompts continue earlier conversations or begin with one of three system prompts."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._computed: list[list[int]] = []  # what a prefix cache may hold
        self._systems = [[chance.randint(1, 9) for _ in range(length)] for length in (3, 8, 13)]

    def prompt(self) -> tuple[list[int], int]:
        """Token ids, and how many of the first ones are cached."""
        chance = self._chance
        begin = chance.choice(self._computed[-6:] if self._computed and chance.random() < 0.5 else self._systems)
        if len(begin) > 2 * LONGEST:
            begin = self._systems[0]
        ids = begin + [chance.randint(1, 9) for _ in range(chance.randint(1, 9))]
        hit = max((common_length(ids, text) for text in self._computed), default=0)
        return ids, min(len(ids) - 1, hit if chance.random() < 0.8 else chance.randint(0, hit))

    def output(self) -> list[int]:
        return [self._chance.randint(1, 9) for _ in range(self._chance.randint(1, 12))]

    def computed(self, text: list[int]) -> None:
        self._computed = [*self._computed[-40:], text]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
