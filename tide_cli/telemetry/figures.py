"""What SGLang's Prometheus page says of one moment: counters that only grow, and figures of now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tide_cli.telemetry.prometheus import read_samples

# names as sglang 0.5.23 exports them (srt/observability/metrics_collector.py)
_THROUGHPUT = "sglang:gen_throughput"
_ACCEPT_LENGTH = "sglang:spec_accept_length"
_RUNNING = "sglang:num_running_reqs"
_QUEUED = "sglang:num_queue_reqs"
_KV_USE = "sglang:token_usage"
# grows in every round; generation_tokens_total and prompt_tokens_total only at the ends of requests
_TOKENS = "sglang:realtime_tokens_total"
_FIRST_TOKEN = "sglang:time_to_first_token_seconds"
_LATER_TOKEN = "sglang:inter_token_latency_seconds"

_GAUGES = (_THROUGHPUT, _ACCEPT_LENGTH, _RUNNING, _QUEUED, _KV_USE)
_COUNTS = (f"{_FIRST_TOKEN}_count", f"{_LATER_TOKEN}_count")
_BUCKETS = (f"{_FIRST_TOKEN}_bucket", f"{_LATER_TOKEN}_bucket")
READ = frozenset((*_GAUGES, _TOKENS, *_COUNTS, *_BUCKETS))

Counts = Mapping[float, float]  # seconds -> events that took no longer


@dataclass(frozen=True)
class EngineFigures:
    """tok_s: generated tokens/s; accept_length: completion tokens / verify steps, bonus included, None before any.

    running, queued: requests; kv_use: part of the KV cache that is taken, None where it is not told.
    """

    tok_s: float
    accept_length: float | None
    running: int
    queued: int
    kv_use: float | None = None


@dataclass(frozen=True)
class EngineCounters:
    """Since the engine's start. output: tokens generated; input: tokens of prompts, cached ones included.

    events: grows whenever tokens are given. first_token, later_token: requests and tokens by latency, cumulative.
    """

    output: float = 0.0
    input: float = 0.0
    events: float = 0.0
    first_token: Counts = field(default_factory=dict)
    later_token: Counts = field(default_factory=dict)


def read_engine(text: str) -> tuple[EngineFigures, EngineCounters]:
    """Both from one page of SGLang's; what is absent counts as nothing."""
    gauges: dict[str, float] = {}
    tokens: dict[str, float] = {}
    counts: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {name: {} for name in _BUCKETS}
    for sample in read_samples(text, READ):
        if sample.name in buckets:
            bound = float(sample.label("le") or "inf")
            buckets[sample.name][bound] = buckets[sample.name].get(bound, 0.0) + sample.value
        elif sample.name == _TOKENS:
            mode = sample.label("mode") or ""
            tokens[mode] = tokens.get(mode, 0.0) + sample.value
        else:
            kept = counts if sample.name in _COUNTS else gauges
            kept[sample.name] = kept.get(sample.name, 0.0) + sample.value
    first = counts.get(f"{_FIRST_TOKEN}_count", 0.0)
    figures = EngineFigures(
        tok_s=gauges.get(_THROUGHPUT, 0.0),
        accept_length=gauges.get(_ACCEPT_LENGTH) or None,
        running=int(gauges.get(_RUNNING, 0)),
        queued=int(gauges.get(_QUEUED, 0)),
        kv_use=gauges.get(_KV_USE),
    )
    counters = EngineCounters(
        output=tokens.get("decode", 0.0) + first,  # the first token of a request comes out of its prefill
        input=tokens.get("prefill_compute", 0.0) + tokens.get("prefill_cache", 0.0),
        events=first + counts.get(f"{_LATER_TOKEN}_count", 0.0),
        first_token=buckets[_BUCKETS[0]],
        later_token=buckets[_BUCKETS[1]],
    )
    return figures, counters
