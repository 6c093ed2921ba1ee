"""A torch attention backend that knows the EAGLE forward modes, for SGLang on a CPU.

SGLang 0.5.23's own `torch_native` backend attends for prefill and plain decoding only; its one CPU backend with
verify, draft and draft-extend needs AMX kernels. This one plans each forward once (which queries of which
sequence attend to which cache slots) and runs all layers from that plan. Drafts are chains (topk 1), so in every
mode the queries of a sequence are its newest tokens and attention is causal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch.nn.functional import scaled_dot_product_attention

# Up to here the heads of a group are stacked as rows of one small product; beyond, a prefill is better off with
# torch's own grouped attention, which needs no mask when it starts from an empty prefix.
_FEW_QUERIES = 64


class _CacheWritten(Exception):
    """The forward has done what it was run for."""


@dataclass(frozen=True)
class SequencePlan:
    """The queries [first, first + count) of one forward and the cache slots [kv] they attend to, newest last."""

    first: int
    count: int
    slots: torch.Tensor


class CpuAttentionBackend(TorchNativeAttnBackend):
    """Attention for target and draft; draft_step numbers the draft's decode steps, None everywhere else."""

    def __init__(self, model_runner, draft_step: int | None = None) -> None:
        super().__init__(model_runner)
        self.draft_step = draft_step
        self.plan: list[SequencePlan] = []
        self._stop_at: int | None = None
        self._masks: dict[tuple[int, int, int, int | None, torch.dtype], torch.Tensor] = {}

    @contextmanager
    def only_cache(self, last_layer: int) -> Iterator[None]:
        """The forward inside ends as soon as the last layer's keys and values are in the cache, without a result.

        What comes after them (attention, MLP, head) is two thirds of a one-layer draft.
        """
        self._stop_at = last_layer
        try:
            yield
        except _CacheWritten:
            pass
        finally:
            self._stop_at = None

    def init_forward_metadata(self, forward_batch) -> None:
        super().init_forward_metadata(forward_batch)
        self._masks.clear()
        self.plan = self._make_plan(forward_batch)

    def _make_plan(self, forward_batch) -> list[SequencePlan]:
        mode = forward_batch.forward_mode
        if mode.is_idle():
            return []
        requests = forward_batch.req_pool_indices.tolist()
        lengths = forward_batch.seq_lens.tolist()  # of the whole sequence in extend, before the new tokens in verify
        if mode.is_decode():
            counts = [1] * len(requests)
            if self.draft_step is not None:
                lengths = [length + self.draft_step + 1 for length in lengths]
        elif mode.is_target_verify():
            counts = [forward_batch.spec_info.draft_token_num] * len(requests)
            lengths = [length + count for length, count in zip(lengths, counts, strict=True)]
        else:
            counts = forward_batch.extend_seq_lens.tolist()
        table = self.req_to_token_pool.req_to_token
        plan, first = [], 0
        for request, length, count in zip(requests, lengths, counts, strict=True):
            plan.append(SequencePlan(first, count, table[request, :length].long()))
            first += count
        return plan

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        if layer.is_cross_attention or layer.attn_type == AttentionType.ENCODER_ONLY:
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache)

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        if layer.is_cross_attention or layer.attn_type == AttentionType.ENCODER_ONLY:
            return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache)
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache)

    def _attend(self, q, k, v, layer, forward_batch, save_kv_cache) -> torch.Tensor:
        """q [tokens, heads*d] and the cache of `layer` -> [tokens, heads*dv]; writes k and v into the cache first."""
        pool = self.token_to_kv_pool
        if save_kv_cache and k is not None:
            pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc), k, v)
            if layer.layer_id == self._stop_at:
                raise _CacheWritten
        queries = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        keys, values = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
        window = layer.sliding_window_size if (layer.sliding_window_size or -1) > -1 else None
        out = queries.new_empty((queries.shape[0], layer.tp_q_head_num, layer.v_head_dim))
        for part in self.plan:
            rows = slice(part.first, part.first + part.count)
            out[rows] = self._attend_sequence(
                queries[rows],
                keys.index_select(0, part.slots).to(queries.dtype),
                values.index_select(0, part.slots).to(queries.dtype),
                layer.scaling,
                window,
            )
        return out.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    def _attend_sequence(self, q, k, v, scale, window) -> torch.Tensor:
        """q [n, heads, d], k [kv, kv_heads, d], v [kv, kv_heads, dv] -> [n, heads, dv]; q are the newest n tokens."""
        n, heads, d = q.shape
        kv, kv_heads, dv = v.shape
        group = heads // kv_heads
        k, v = k.transpose(0, 1).unsqueeze(0), v.transpose(0, 1).unsqueeze(0)
        if n > _FEW_QUERIES:
            causal = n == kv and window is None
            mask = None if causal else self._mask(n, kv, 1, window, q.dtype)
            q = q.transpose(0, 1).unsqueeze(0)
            out = scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=group > 1
            )
            return out.squeeze(0).transpose(0, 1)
        mask = None if n == 1 and window is None else self._mask(n, kv, group, window, q.dtype)
        q = q.view(n, kv_heads, group, d).permute(1, 2, 0, 3).reshape(1, kv_heads, group * n, d)
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return out.view(kv_heads, group, n, dv).permute(2, 0, 1, 3).reshape(n, heads, dv)

    def _mask(self, n: int, kv: int, repeats: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """[repeats*n, kv] additive, made once a forward and used by all layers: -inf where a query may not look."""
        key = (n, kv, repeats, window, dtype)
        if key not in self._masks:
            query_at = (kv - n + torch.arange(n)).unsqueeze(1)
            key_at = torch.arange(kv).unsqueeze(0)
            hidden = key_at > query_at
            if window is not None:
                hidden |= key_at < query_at - window
            mask = torch.zeros(n, kv, dtype=dtype).masked_fill_(hidden, float("-inf"))
            self._masks[key] = mask.repeat(repeats, 1)
        return self._masks[key]


class CpuMultiStepDraftBackend:
    """One backend for each decode step of the draft; the first draft token comes from draft-extend."""

    needs_cpu_seq_lens = True

    def __init__(self, model_runner, num_steps: int) -> None:
        self.attn_backends = [CpuAttentionBackend(model_runner, draft_step=step) for step in range(num_steps - 1)]

    def init_forward_metadata(self, forward_batch) -> None:
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)
