"""When a training cycle has come as far as it will: looks at the candidate while it trains.

A look walks a few samples. They must be neither among those that are trained on, on which every step is progress, nor
among the gate's: the weights that are kept are the ones that did best of several looks, so that on the very samples
of the looks they do better than they are (the largest of several noisy figures), and a gate that judged by those would
pass a candidate for its luck. So a look takes none of the held-out samples. It takes some of the newest training
samples that no draft was trained on, which this cycle leaves alone and the next one trains on.
"""

from __future__ import annotations

from collections.abc import Sequence

LOOK_SHARE = 0.05  # rows that are walked for looks, at most, of the rows that are trained on
PATIENCE = 2  # looks in a row without progress that end a cycle
FEWEST_SAMPLES, MOST_SAMPLES = 8, 16  # of a look: fewer say little, more cost much
_HELD_BACK = 4  # one of so many new samples, at most: a cycle is there to learn from them
_LEAST_WALKS = 2 + PATIENCE  # the start, those without progress, and the weights of the last step


def looked_at(tokens: Sequence[int], expected: float) -> int:
    """How many of the new training samples, the newest first, a cycle looks at instead of training on them.

    tokens: length of each that no draft was trained on. expected: tokens that the cycle will train on. 0 where
    there are too few, as after a shift of the traffic, or where the looks that could end the cycle would cost too much.
    """
    count = min(MOST_SAMPLES, len(tokens) // _HELD_BACK)
    while count >= FEWEST_SAMPLES and _LEAST_WALKS * sum(tokens[:count]) > LOOK_SHARE * expected:
        count -= 1
    return count if count >= FEWEST_SAMPLES else 0


def next_look(rows: int, walked: int) -> float:
    """Trained tokens from which on the next look is due. rows: of a walk; walked: how often they were walked so far.

    The first look walks them with the weights of the start too, and a last one may come at any time.
    """
    walks = max(walked, 1) + 2
    return walks * rows / LOOK_SHARE


def best_look(lengths: Sequence[float]) -> int:
    """Index of the look with the highest acceptance length, the first of several; ValueError where there is none."""
    return lengths.index(max(lengths))


def no_progress(lengths: Sequence[float]) -> bool:
    """Whether the last looks of a cycle, as many as PATIENCE, were all no better than the best one before them."""
    return len(lengths) - 1 - best_look(lengths) >= PATIENCE
