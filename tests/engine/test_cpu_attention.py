"""The attention backend on a made-up cache: what a forward that is run for its cache alone does."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from tide_cli.engine.cpu.attention import CpuAttentionBackend, SequencePlan


class Pool:
    """A cache of 8 slots that notes which layers were written."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def set_kv_buffer(self, layer, location, k, v) -> None:
        self.written.append(layer.layer_id)

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        return torch.ones(8, 1, 4)

    get_value_buffer = get_key_buffer


def test_a_forward_for_the_cache_alone_ends_with_the_last_layers_keys() -> None:
    backend = CpuAttentionBackend.__new__(CpuAttentionBackend)
    backend.token_to_kv_pool, backend.swa_out_cache_loc = Pool(), None
    backend._stop_at, backend._masks, backend.plan = None, {}, [SequencePlan(0, 2, torch.arange(5))]
    states = torch.ones(2, 4)
    reached = []

    def forward() -> None:
        for layer_id in range(2):
            layer = SimpleNamespace(
                layer_id=layer_id, tp_q_head_num=1, qk_head_dim=4, v_head_dim=4, scaling=0.5, sliding_window_size=None
            )
            batch = SimpleNamespace(out_cache_loc=torch.arange(3, 5))
            reached.append(backend._attend(states, states, states, layer, batch, True))

    with backend.only_cache(1):
        forward()
    assert backend.token_to_kv_pool.written == [0, 1]
    assert len(reached) == 1
    forward()
    assert len(reached) == 3
