"""The phases of a start, from lines as SGLang writes them."""

from __future__ import annotations

import time

from tide_cli.engine.phases import StartPhases, phase_words

ON_CPU = """\
/x/sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still supported
[2026-11-29 17:25:59] Cannot detect CUDA architecture.
[2026-11-29 17:26:03] server_args={'model_path': '/x/smollm2-135m', 'max_total_num_tokens=': 1}
[2026-11-29 17:26:53] Init parallel begin.
[2026-11-29 17:26:53] Init parallel ends. elapsed=0.10 s
[2026-11-29 17:27:01] Memory baseline taken. mem usage=0.00 GB
[2026-11-29 17:27:02] Load weight begin. avail mem=20.48 GB
Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00,  2.54it/s]
[2026-11-29 17:27:03] Load weight end. elapsed=0.95 s, type=LlamaForCausalLM, avail mem=19.98 GB, mem usage=0.50 GB.
[2026-11-29 17:27:07] Load weight begin. avail mem=19.53 GB
[2026-11-29 17:27:08] Load weight end. elapsed=0.05 s, type=LlamaForCausalLMEagle3, avail mem=19.52 GB
[2026-11-29 17:27:08] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384, K size: 0.18 GB, V size: 0.18 GB
[2026-11-29 17:27:08] Memory pool end. avail mem=19.13 GB
[2026-11-29 17:27:09] max_total_num_tokens=16384, chunked_prefill_size=512, max_prefill_tokens=16384
[2026-11-29 17:27:10] INFO:     Uvicorn running on http://127.0.0.1:42101 (Press CTRL+C to quit)
[2026-11-29 17:27:10] The server is fired up and ready to roll!
"""
ON_GPUS = """\
[2026-01-20 02:40:00 TP0] Init parallel begin.
[2026-01-20 02:40:05 TP0] Load weight begin. avail mem=78.00 GB
[2026-01-20 02:40:06 TP1] Load weight begin. avail mem=78.00 GB
[2026-01-20 02:40:29 TP0] Load weight end. elapsed=24.00 s, type=Qwen3ForCausalLM, avail mem=63.53 GB
[2026-01-20 02:40:30 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 404777
[2026-01-20 02:40:31 TP0] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=13 GB
[2026-01-20 02:40:40 TP1] Load weight end. elapsed=24.00 s, type=Qwen3ForCausalLM, avail mem=63.53 GB
[2026-01-20 02:40:51 TP0] Capture target verify CUDA graph end. bs=[1, 2], elapsed=20.00 s, avail mem=11.00 GB.
"""


def at(text: str) -> float:
    """Unix seconds of a stamp in local time."""
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def test_a_whole_start_on_a_cpu() -> None:
    begun = at("2026-11-29 17:25:50")
    start = StartPhases(begun)
    assert start.phase == "imports"
    start.read(ON_CPU.splitlines())
    seconds = start.seconds(at("2026-11-29 17:27:12"))
    assert seconds == {
        "imports": 63.0,
        "devices": 9.0,
        "weights": 2.0,
        "kv_cache": 5.0,
        "warm_up": 1.0,
        "first_token": 2.0,
    }
    assert sum(seconds.values()) == at("2026-11-29 17:27:12") - begun
    assert phase_words({"weights": 2.0, "kv_cache": 0.2, "first_token": 1.6}) == "loading weights 2 s, first token 2 s"


def test_the_present_phase_of_several_ranks() -> None:
    start = StartPhases(at("2026-01-20 02:39:58"))
    start.read(ON_GPUS.splitlines())
    assert start.phase == "graphs"
    assert start.present_seconds(at("2026-01-20 02:40:57")) == 26.0
    assert start.seconds(at("2026-01-20 02:40:57"))["weights"] == 24.0


def test_lines_may_come_in_any_pieces() -> None:
    whole, pieces = (StartPhases(at("2026-11-29 17:25:50")) for _ in range(2))
    whole.read(ON_CPU.splitlines())
    for line in ON_CPU.splitlines():
        pieces.read([line])
    now = at("2026-11-29 17:27:12")
    assert pieces.seconds(now) == whole.seconds(now)


def test_a_clock_that_is_behind_makes_no_negative_phase() -> None:
    start = StartPhases(at("2026-11-29 18:00:00"))
    start.read(ON_CPU.splitlines())
    assert min(start.seconds(at("2026-11-29 17:00:00")).values()) == 0.0
