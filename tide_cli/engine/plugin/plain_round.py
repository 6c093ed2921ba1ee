"""A round of 0 draft steps as what it is: a decode step of the target.

SGLang makes a tree of one node of it, verifies that, and samples from its tables: some hundred small operations for a
token that no draft has proposed. On a CPU each of them counts, so the target decodes and samples here as it does
without speculation, and only the result has the form of a verified one. Requests that want more than tokens
(log-probabilities, a grammar, a watermark) stay with SGLang's own way, and so does CUDA, where the tree is a replayed
graph.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftInput


@dataclass
class PlainInput:
    """In place of the tree: tokens [bs], the latest of each request."""

    tokens: torch.Tensor
    kv_loc_plan: None = None

    def is_verify_input(self) -> bool:
        return True


def plain_input(batch) -> PlainInput | None:
    """What `decode` needs of this batch; None where SGLang's own way is to be taken."""
    special = batch.return_logprob or batch.has_grammar or batch.sampling_info.has_watermark_candidates
    return None if special or batch.forward_mode.is_idle() else PlainInput(batch.spec_info.bonus_tokens)


def decode(worker, batch):
    """The round of a batch whose spec_info is a PlainInput: a GenerationBatchResult as of `verify`."""
    requests, before = batch.req_pool_indices, batch.seq_lens
    part = copy.copy(batch)
    part.forward_mode = ForwardMode.DECODE
    part.input_ids = batch.spec_info.tokens.to(torch.int64)
    part.spec_info = None
    part.out_cache_loc = batch.req_to_token_pool.req_to_token[requests, before].to(torch.int64)
    part.seq_lens = part.seq_lens_cpu = before + 1
    part.seq_lens_sum = None
    result = worker.target_worker.forward_batch_generation(part, capture_hidden_mode=CaptureHiddenMode.FULL)
    result.accept_lens = torch.ones_like(result.next_token_ids, dtype=torch.int32)
    result.new_seq_lens = part.seq_lens
    result.speculative_num_draft_tokens = 1
    result.next_draft_input = EagleDraftInput(bonus_tokens=result.next_token_ids)
    return result
