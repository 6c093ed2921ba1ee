"""Made-up traffic for the spool, in the calls that capture makes of real one."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

REQUESTS = 8  # that run at the same time
PROMPT = 256  # tokens, stored by one call
ANSWER = 128  # tokens, stored 1 to 4 at a time, with those of the other requests
_WIDTH = 4  # rows of a verify step; the accepted ones are stored
_POOL_BYTES = 48 * 2**20  # more than most caches hold: rows come from memory, as they do from a device


@dataclass(frozen=True, eq=False)
class Request:
    """tokens [T + 1] int32: prompt and answer and one more, which has no row."""

    rid: str
    tokens: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Put:
    """Rows offset … offset+count-1 of the pool, as positions from start on of a request."""

    request: Request
    start: int
    offset: int
    count: int


@dataclass(frozen=True)
class Forward:
    """What one forward of the target brings: a prompt, or a verify step of every running request.

    pool: the rows of the pool that it brings; those in no put were not accepted.
    """

    pool: slice
    puts: tuple[Put, ...]
    finished: tuple[Request, ...] = ()

    @property
    def rows(self) -> int:
        return sum(put.count for put in self.puts)


@dataclass(frozen=True)
class Traffic:
    """aux [N, 3H], final [N, H] bfloat16: the pool that rows are taken from. tokens: rows stored in all."""

    aux: Tensor
    final: Tensor
    forwards: tuple[Forward, ...]

    @property
    def tokens(self) -> int:
        return sum(forward.rows for forward in self.forwards)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of all rows."""
        return self.tokens * 8 * self.final.shape[1]


def make_traffic(hidden: int, size_bytes: int, seed: int = 0) -> Traffic:
    """Groups of requests whose states take about `size_bytes` together, at least one group."""
    rows = max(PROMPT + 1, _POOL_BYTES // (8 * hidden))
    generator = torch.Generator().manual_seed(seed)
    aux = torch.randn(rows, 3 * hidden, generator=generator).bfloat16()
    final = torch.randn(rows, hidden, generator=generator).bfloat16()
    chance, forwards, number = random.Random(seed), list[Forward](), 0
    groups = max(1, size_bytes // (REQUESTS * (PROMPT + ANSWER) * 8 * hidden))
    for _ in range(groups):
        running: dict[Request, int] = {}
        for _ in range(REQUESTS):
            tokens = np.array([chance.randrange(2**15) for _ in range(PROMPT + ANSWER + 1)], np.int32)
            request = Request(f"r{number}", tokens)
            offset, number = chance.randrange(rows - PROMPT), number + 1
            forwards.append(Forward(slice(offset, offset + PROMPT), (Put(request, 0, offset, PROMPT),)))
            running[request] = PROMPT
        while running:
            first = chance.randrange(rows - _WIDTH * REQUESTS)
            puts = []
            for place, (request, end) in enumerate(running.items()):
                count = min(chance.randint(1, _WIDTH), request.rows - end)
                puts.append(Put(request, end, first + _WIDTH * place, count))
            pool = slice(first, first + _WIDTH * len(running))
            running = {put.request: put.start + put.count for put in puts}
            finished = tuple(request for request, end in running.items() if end == request.rows)
            forwards.append(Forward(pool, tuple(puts), finished))
            running = {request: end for request, end in running.items() if request not in finished}
    return Traffic(aux, final, tuple(forwards))


def least_size(hidden: int) -> int:
    """Bytes of states that a store must hold so that a group can run and others lie finished beside it."""
    return 2 * REQUESTS * (PROMPT + ANSWER) * 8 * hidden
