"""At 0 draft steps the draft's cache is kept up to date in stretches, and without proposals.

SGLang lets the draft read every new token even in rounds that propose nothing, so that its cache is there when
proposing begins again. On a CPU that is 8 % of a plain round (measured with the embedded target, one request). Two
things make it cheap. A stretch of tokens costs the draft little more than one token, so the target's hidden states are
held back until a request has MOST_HELD of them. And for its cache the draft need not run to its end: it stops at the
keys and values of its last layer. The newest token of each request always stays held back: its forward gives the
proposals when proposing begins. A prompt is read in the same way.

What a request that ends still has held back is never read: a later prompt that continues it finds at most so many
positions of the draft's cache stale, which costs acceptance there and changes no output.

For a CPU, where a forward is what it is called with. On CUDA the extension of one token is a replayed graph; SGLang's
own way is kept there.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput, EagleDraftInput

MOST_HELD = 32


@dataclass
class _Held:
    """Of one request, a row for each token not yet read: the target's aux states [3H], and the token after it."""

    states: list[torch.Tensor] = field(default_factory=list)
    tokens: list[torch.Tensor] = field(default_factory=list)


class DeferredExtend:
    """What the draft of one worker has not read yet, by request."""

    def __init__(self, worker) -> None:
        self._worker = worker
        self._held: dict[str, _Held] = {}

    def uneven(self, reqs) -> bool:
        """Some of these requests have tokens held back and some have none: they cannot be read in one batch yet."""
        return len({req.rid in self._held for req in reqs}) == 2

    def forget(self, reqs) -> None:
        """These are prefilled (again): the draft reads all of them with it."""
        for req in reqs:
            self._held.pop(req.rid, None)

    def prefill(self, extend, batch, states: torch.Tensor, next_tokens: torch.Tensor) -> EagleDraftInput:
        """Fills the draft's cache with a prompt. extend: the draft's extension over it, which would go on to propose.

        states [tokens, 3H] of the target, next_tokens [requests].
        """
        ends = torch.tensor(batch.extend_lens).cumsum(0) - 1
        with self._only_cache():
            return extend()
        for req, state, token in zip(batch.reqs, states[ends], next_tokens.to(torch.int64), strict=True):
            self._held[req.rid] = _Held([state], [token])
        draft_input = EagleDraftInput(bonus_tokens=next_tokens, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1)
        self._worker._stub_skipped_draft_extend(batch, SimpleNamespace(next_draft_input=draft_input))
        return draft_input

    def hold(self, batch, result) -> None:
        """In place of the draft's extension after a round without proposals."""
        states, tokens = result.logits_output.hidden_states, result.next_token_ids.to(torch.int64)
        held = {req.rid: self._held.get(req.rid) or _Held() for req in batch.reqs}  # and nobody else's any more
        for i, one in enumerate(held.values()):
            one.states.append(states[i])
            one.tokens.append(tokens[i])
        self._held = held
        self._worker._stub_skipped_draft_extend(batch, result)
        if max(len(one.tokens) for one in held.values()) > MOST_HELD:
            # the round's own token is in the target's cache by now, and not yet in batch.seq_lens
            self._fill(batch, [length + 1 for length in batch.seq_lens.tolist()])

    def catch_up(self, batch) -> bool:
        """Before the draft proposes: its first proposals. Whether there was anything to read."""
        if not any(req.rid in self._held for req in batch.reqs):
            return False
        ends = batch.seq_lens.tolist()
        self._fill(batch, ends)
        logits = self._forward(batch, ends)
        draft_input = batch.spec_info
        draft_input.topk_index = torch.argmax(logits.next_token_logits, dim=-1, keepdim=True)
        draft_input.topk_p = torch.ones_like(draft_input.topk_index, dtype=torch.float32)
        draft_input.hidden_states = logits.hidden_states
        self._held.clear()
        return True

    def _only_cache(self):
        runner = self._worker.draft_worker.draft_runner
        return runner.attn_backend.only_cache(runner.model_config.num_hidden_layers - 1)

    def _fill(self, batch, ends: list[int]) -> None:
        """The draft's cache over what is held; only the newest token of each request stays held."""
        if all(len(self._held[req.rid].tokens) == 1 for req in batch.reqs):
            return
        with self._only_cache():
            self._forward(batch, ends)
        for req in batch.reqs:
            held = self._held[req.rid]
            del held.states[:-1], held.tokens[:-1]

    def _forward(self, batch, ends: list[int]):
        """One forward of the draft over what is held.

        ends: length of each request, so that what is held of it lies at the positions [end - held, end).
        """
        draft = self._worker.draft_worker
        held = [self._held[req.rid] for req in batch.reqs]
        counts = [len(one.tokens) for one in held]
        starts = [end - count for end, count in zip(ends, counts, strict=True)]
        table, requests = batch.req_to_token_pool.req_to_token, batch.req_pool_indices.tolist()
        part = copy.copy(batch)
        part.forward_mode = ForwardMode.EXTEND
        part.decoding_reqs = list(batch.reqs)  # none of them is in a prefill
        part.return_logprob = False
        part.input_ids = torch.stack([token for one in held for token in one.tokens])
        part.seq_lens = torch.tensor(ends, dtype=batch.seq_lens.dtype)
        part.seq_lens_cpu, part.seq_lens_sum = part.seq_lens, sum(ends)
        part.prefix_lens, part.extend_lens, part.extend_num_tokens = starts, counts, sum(counts)
        part.out_cache_loc = torch.cat(
            [table[request, start:end] for request, start, end in zip(requests, starts, ends, strict=True)]
        ).to(torch.int64)
        part.spec_info = EagleDraftExtendInput(
            hidden_states=torch.stack([state for one in held for state in one.states]),
            num_tokens_per_req=1,
            num_tokens_for_logprob_per_req=1,
        )
        forward = ForwardBatch.init_new(
            part,
            draft.draft_runner,
            capture_hidden_mode=CaptureHiddenMode.LAST,
            return_hidden_states_before_norm=False,
        )
        return draft.draft_runner.forward(forward).logits_output
