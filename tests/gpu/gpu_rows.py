"""Hidden states that say whose they are: each 16-bit word of a row follows from request, position and column.

A row that was torn, that is another's or an older one's, or that the target rejected, does not fit its place. The
words are arbitrary bits of bfloat16, infinities and NaNs among them: all that happens to a row is that it is copied.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

# odd, so that each of them alone changes every word
_REQUEST, _POSITION, _COLUMN, _REJECTED = 40503, 8191, 257, 21845
_VOCABULARY = 200_000


def accepted(request, position, width: int):
    """Rows that the target accepts, 1 to `width`, of numbers or tensors: both sides can tell."""
    return 1 + (request * 7 + position * 3) % width


def token(request, position):
    """The token of a position; no two requests begin alike."""
    return (request * 131 + position * 31) % _VOCABULARY


def write_rows(requests: Tensor, positions: Tensor, rejected: Tensor, hidden: int) -> tuple[Tensor, Tensor]:
    """aux [k, 3H] and final [k, H] bfloat16 of k rows on their device. All int32 [k]; rejected: 0 or 1."""
    first = requests * _REQUEST + positions * _POSITION + rejected * _REJECTED
    columns = torch.arange(4 * hidden, dtype=torch.int32, device=first.device) * _COLUMN
    words = (first[:, None] + columns).to(torch.int16).view(torch.bfloat16)
    return words[:, : 3 * hidden].contiguous(), words[:, 3 * hidden :].contiguous()


def wrong_rows(aux: Tensor, final: Tensor, request: int, positions: range) -> int:
    """How many of the rows, on the host, are not those of this request at these positions, accepted."""
    words = np.concatenate([_words(aux), _words(final)], 1)
    first = np.array([(request * _REQUEST + p * _POSITION) & 0xFFFF for p in positions], np.uint16)
    return int((words - first[:, None] != _columns(words.shape[1])).any(1).sum())


@cache
def _columns(count: int) -> np.ndarray:
    return (np.arange(count) * _COLUMN & 0xFFFF).astype(np.uint16)


def _words(states: Tensor) -> np.ndarray:
    return states.contiguous().view(torch.int16).numpy().view(np.uint16)
