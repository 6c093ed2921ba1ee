"""Made-up traffic for the spool, in the calls that capture makes of real one."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

REQUESTS = 8  # that run at the same time
PROMPT = 256  # tokens, stored by one call
ANSWER = 128  # tokens, stored 1 to 4 at a time
_WIDTH = 4  # rows of a verify step; the accepted ones are stored
_POOL_BYTES = 48 * 2**20  # more than most caches hold: rows come from memory, as they do from a device


@dataclass(frozen=True)
class Put:
    """The arguments of one put_rows: rows offset … offset+count-1 of the pool as positions from start on."""

    rid: str
    start: int
    offset: int
    count: int


@dataclass(frozen=True)
class Request:
    """A request that has ended; tokens: prompt and answer and one more, which has no row."""

    rid: str
    tokens: list[int]

    @property
    def rows(self) -> int:
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Forward:
    """What one forward of the target brings: a prompt, or some rows of every running request."""

    puts: tuple[Put, ...]
    finished: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Traffic:
    """aux [N, 3H], final [N, H] bfloat16: the pool that rows are taken from. tokens: rows stored in all."""

    aux: Tensor
    final: Tensor
    forwards: tuple[Forward, ...]

    @property
    def tokens(self) -> int:
        return sum(put.count for forward in self.forwards for put in forward.puts)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of all rows."""
        return self.tokens * 8 * self.final.shape[1]


def make_traffic(hidden: int, size_bytes: int, seed: int = 0) -> Traffic:
    """Groups of requests whose states take about `size_bytes` together, at least one group."""
    rows = max(PROMPT + _WIDTH, _POOL_BYTES // (8 * hidden))
    generator = torch.Generator().manual_seed(seed)
    aux = torch.randn(rows, 3 * hidden, generator=generator).bfloat16()
    final = torch.randn(rows, hidden, generator=generator).bfloat16()
    chance, forwards, number = random.Random(seed), list[Forward](), 0
    groups = max(1, size_bytes // (REQUESTS * (PROMPT + ANSWER) * 8 * hidden))
    for _ in range(groups):
        group = [f"r{number + i}" for i in range(REQUESTS)]
        number += REQUESTS
        ends = dict.fromkeys(group, PROMPT)
        forwards += [Forward((Put(rid, 0, chance.randrange(rows - PROMPT), PROMPT),)) for rid in group]
        while ends:
            step = chance.randrange(rows - _WIDTH * REQUESTS)
            puts = []
            for place, (rid, end) in enumerate(ends.items()):
                count = min(chance.randint(1, _WIDTH), PROMPT + ANSWER - end)
                puts.append(Put(rid, end, step + _WIDTH * place, count))
                ends[rid] += count
            done = [rid for rid, end in ends.items() if end == PROMPT + ANSWER]
            finished = [Request(rid, [chance.randrange(2**15) for _ in range(PROMPT + ANSWER + 1)]) for rid in done]
            forwards.append(Forward(tuple(puts), tuple(finished)))
            ends = {rid: end for rid, end in ends.items() if rid not in done}
    return Traffic(aux, final, tuple(forwards))


def least_size(hidden: int) -> int:
    """Bytes of states that a store must hold so that a group can run and others lie finished beside it."""
    return 2 * REQUESTS * (PROMPT + ANSWER) * 8 * hidden
