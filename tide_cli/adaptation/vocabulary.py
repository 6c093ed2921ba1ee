"""Which of the target's tokens a draft should be able to propose.

A draft has a few thousand of the target's tokens. What the target says outside them is never proposed, whatever the
draft has learned: their share of the traffic is a ceiling on acceptance, which a change of language lowers at once.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

WORTH = 0.005  # share of the recent tokens that another vocabulary must add, at least: a change costs head rows

Ids = NDArray[np.int64]
Counts = NDArray[np.int64]


def coverage(ids: Ids, counts: Counts) -> float | None:
    """Share of the counted tokens that a vocabulary holds; None where none was counted.

    ids [D]: the vocabulary, ids of the target; counts [V]: how often each of the target's tokens occurred.
    """
    total = int(counts.sum())
    return int(counts[ids].sum()) / total if total else None


def better_vocabulary(
    ids: Ids, recent: Counts, old: Counts, *, old_share: float, special: Collection[int], wanted: float
) -> Ids | None:
    """Another vocabulary of the same size [D], ascending, for traffic like the recent one; None where `ids` is as good.

    recent, old [V]: how often each token occurred in recent and in kept old samples; old_share: weight of the old ones,
    so that what comes back later is still covered. special: never given up. wanted: a vocabulary that covers this share
    of the recent tokens is left as it is. Tokens in use come first, then what is there already, by ascending id: a
    byte-pair tokenizer numbers frequent tokens first.
    """
    now = coverage(ids, recent)
    if now is None or now >= wanted:
        return None
    use = _shares(recent) * (1 - old_share) + _shares(old) * old_share
    present, kept = np.zeros(len(use), bool), np.zeros(len(use), bool)
    present[ids], kept[[token for token in special if token < len(use)]] = True, True
    # the last key counts first; a special token that is not there yet has no claim on a place
    order = np.lexsort((np.arange(len(use)), ~present, -use, ~(kept & present)))
    chosen = np.sort(order[: len(ids)])
    gained = coverage(chosen, recent)
    assert gained is not None  # something was counted
    return chosen if gained >= now + WORTH else None


def _shares(counts: Counts) -> NDArray[np.float64]:
    return counts / max(1, int(counts.sum()))
