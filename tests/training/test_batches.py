from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.training.batches import Ref, collate, plan_pass

_lengths = st.lists(st.integers(1, 300), max_size=40)


def _refs(lengths: list[int]) -> list[Ref]:
    return [Ref(length, lambda: None) for length in lengths]


@given(_lengths, _lengths, st.floats(0, 0.8), st.integers(16, 600), st.integers(0, 99))
def test_a_pass_uses_each_fresh_sample_once_in_batches_of_the_asked_size(
    fresh_lengths: list[int], old_lengths: list[int], share: float, batch_tokens: int, seed: int
) -> None:
    fresh, old = _refs(fresh_lengths), _refs(old_lengths)
    batches = plan_pass(fresh, old, replay_share=share, batch_tokens=batch_tokens, rng=random.Random(seed))
    used = Counter(id(ref) for batch in batches for ref in batch)
    assert all(used[id(ref)] == 1 for ref in fresh)
    assert used.keys() <= {id(ref) for ref in fresh + old}
    for batch in batches:
        assert batch
        assert len(batch) == 1 or len(batch) * max(ref.tokens for ref in batch) <= batch_tokens
    if old and fresh:
        replayed = sum(ref.tokens for batch in batches for ref in batch) - sum(fresh_lengths)
        wanted = sum(fresh_lengths) * share / (1 - share)
        assert wanted - 1e-6 <= replayed <= wanted + max(old_lengths)


def test_like_lengths_share_a_batch() -> None:
    refs = _refs([10, 200] * 12)
    batches = plan_pass(refs, [], replay_share=0, batch_tokens=400, rng=random.Random(0))
    padded = sum(len(batch) * max(ref.tokens for ref in batch) for batch in batches)
    assert padded < 1.3 * sum(ref.tokens for ref in refs)


def _sample(tokens: int, prompt: int) -> Sample:
    info = SampleInfo(1, "run", 0, 0.0, tokens, prompt, 0, 1, 0, "train", 0, ())
    mask = torch.arange(tokens) >= prompt
    aux = torch.arange(tokens).float()[:, None].expand(-1, 6).bfloat16()
    return Sample(info, torch.arange(tokens) + 100, mask, aux, aux[:, :2])


def test_collate_pads_and_marks_the_row_before_the_answer() -> None:
    batch = collate([_sample(5, 3), _sample(3, 1)], 99, torch.float32)
    assert batch["input_ids"].tolist() == [[100, 101, 102, 103, 104], [100, 101, 102, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert batch["loss_mask"].tolist() == [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch["hidden_state"].shape == (2, 5, 6)
    assert batch["target"].shape == (2, 5, 2)
    assert batch["hidden_state"].dtype == torch.float32
    assert batch["hidden_state"][0, :, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("limit", [2, 4])
def test_a_long_sample_keeps_its_last_rows(limit: int) -> None:
    batch = collate([_sample(6, 4)], limit, torch.float32)
    assert batch["input_ids"].tolist() == [list(range(106 - limit, 106))]
    assert batch["target"][0, :, 0].tolist() == list(range(6 - limit, 6))
