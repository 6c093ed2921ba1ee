from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.vocabulary import WORTH, better_vocabulary, coverage

IDS = np.array([0, 1, 2, 3, 5, 8])
RULES = {"old_share": 0.0, "special": [0], "wanted": 0.97}
NONE = np.zeros(12, np.int64)


def counts(**of: int) -> np.ndarray:
    made = NONE.copy()
    for name, count in of.items():
        made[int(name[1:])] = count
    return made


def test_coverage():
    assert coverage(IDS, counts(t1=3, t8=1, t11=4)) == 0.5
    assert coverage(IDS, NONE) is None


def test_tokens_in_use_come_in_and_the_least_likely_go():
    # 0 is special, 1 and 8 are in use; of the others the highest go first
    better = better_vocabulary(IDS, counts(t1=50, t8=5, t11=30, t9=15), NONE, **RULES)
    assert better.tolist() == [0, 1, 2, 8, 9, 11]


def test_what_old_samples_use_stays_with_its_share():
    recent, old = counts(t6=40, t7=30, t9=20, t10=6, t11=4), counts(t3=5, t5=5)
    alone = better_vocabulary(IDS, recent, old, **RULES)
    assert alone.tolist() == [0, 6, 7, 9, 10, 11]
    both = better_vocabulary(IDS, recent, old, **RULES | {"old_share": 0.3})
    assert both.tolist() == [0, 3, 5, 6, 7, 9]


@pytest.mark.parametrize(
    ("recent", "why"),
    [
        (NONE, "nothing is known"),
        (counts(t1=98, t11=2), "enough is covered"),
        (counts(t0=20, t1=20, t2=20, t3=20, t5=10, t8=5, t11=5), "every place is taken by a token as frequent"),
    ],
)
def test_it_stays(recent: np.ndarray, why: str):
    assert better_vocabulary(IDS, recent, NONE, **RULES) is None, why


@given(
    st.lists(st.integers(0, 50), min_size=12, max_size=12),
    st.lists(st.integers(0, 50), min_size=12, max_size=12),
    st.sets(st.integers(0, 11), min_size=1),
    st.sets(st.integers(0, 20)),
    st.floats(0, 0.9),
)
def test_whatever_the_traffic(recent: list[int], old: list[int], ids: set[int], special: set[int], share: float):
    present, now = np.array(sorted(ids)), np.array(recent)
    better = better_vocabulary(present, now, np.array(old), old_share=share, special=special, wanted=0.97)
    if better is None:
        return
    assert len(better) == len(present)
    assert (np.diff(better) > 0).all()
    assert special & ids <= set(better.tolist())
    assert coverage(better, now) >= coverage(present, now) + WORTH
