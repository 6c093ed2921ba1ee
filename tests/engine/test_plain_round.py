"""A round of 0 draft steps as a decode step: what the target is asked for, and the form of what comes back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode

from tide_cli.engine.plugin import plain_round


def batch_of(**changes: object) -> SimpleNamespace:
    """Two requests, of 5 and 9 tokens, in the rows 2 and 0 of the cache's table."""
    batch = SimpleNamespace(
        forward_mode=ForwardMode.DECODE,
        return_logprob=False,
        has_grammar=False,
        sampling_info=SimpleNamespace(has_watermark_candidates=False),
        req_pool_indices=torch.tensor([2, 0]),
        req_to_token_pool=SimpleNamespace(req_to_token=torch.arange(300, dtype=torch.int32).view(3, 100)),
        seq_lens=torch.tensor([5, 9]),
        seq_lens_cpu=torch.tensor([5, 9]),
        seq_lens_sum=14,
        input_ids=None,
        spec_info=SimpleNamespace(bonus_tokens=torch.tensor([41, 42], dtype=torch.int32)),
    )
    return SimpleNamespace(**{**vars(batch), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"return_logprob": True},
        {"has_grammar": True},
        {"sampling_info": SimpleNamespace(has_watermark_candidates=True)},
        {"forward_mode": ForwardMode.IDLE},
    ],
)
def test_who_wants_more_than_tokens_is_left_to_sglang(changes: dict[str, object]) -> None:
    assert plain_round.plain_input(batch_of(**changes)) is None


def test_a_round_writes_the_next_slot_of_each_request_and_verifies_one_token() -> None:
    asked = []

    def forward(part, capture_hidden_mode):
        asked.append((part, capture_hidden_mode))
        return SimpleNamespace(next_token_ids=torch.tensor([7, 8]))

    batch = batch_of()
    batch.spec_info = plain_round.plain_input(batch)
    before = dict(vars(batch))
    worker = SimpleNamespace(target_worker=SimpleNamespace(forward_batch_generation=forward))
    result = plain_round.decode(worker, batch)
    ((part, mode),) = asked
    assert mode == CaptureHiddenMode.FULL  # capture and the draft need the states
    assert part.forward_mode == ForwardMode.DECODE
    assert part.spec_info is None
    assert part.input_ids.tolist() == [41, 42]
    assert part.seq_lens.tolist() == part.seq_lens_cpu.tolist() == [6, 10]
    assert part.out_cache_loc.tolist() == [205, 9]
    assert result.accept_lens.tolist() == [1, 1]
    assert result.new_seq_lens.tolist() == [6, 10]
    assert result.speculative_num_draft_tokens == 1
    assert result.next_draft_input.bonus_tokens.tolist() == [7, 8]
    assert vars(batch) == before  # the scheduler goes on with it
