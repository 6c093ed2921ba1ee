"""The few figures of SGLang's Prometheus page that a person wants to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# names as sglang 0.5.23 exports them (srt/observability/metrics_collector.py)
_THROUGHPUT = "sglang:gen_throughput"
_ACCEPT_LENGTH = "sglang:spec_accept_length"
_RUNNING = "sglang:num_running_reqs"
_QUEUED = "sglang:num_queue_reqs"
# both grow while requests run; generation_tokens_total only at their ends
_FIRST_TOKENS = "sglang:time_to_first_token_seconds_count"
_LATER_TOKENS = "sglang:inter_token_latency_seconds_count"


@dataclass(frozen=True)
class EngineFigures:
    """tok_s: generated tokens/s; accept_length: completion tokens / verify steps, bonus included, None before any."""

    tok_s: float
    accept_length: float | None
    running: int
    queued: int


def tokens_given(metrics: Mapping[str, float]) -> float:
    """Grows whenever the engine gives tokens; a count of events rather than of tokens."""
    return metrics.get(_FIRST_TOKENS, 0.0) + metrics.get(_LATER_TOKENS, 0.0)


def engine_figures(metrics: Mapping[str, float]) -> EngineFigures:
    """From metric name to value, as `parse_page` gives them; what is absent counts as nothing."""
    return EngineFigures(
        tok_s=float(metrics.get(_THROUGHPUT, 0.0)),
        accept_length=float(metrics.get(_ACCEPT_LENGTH, 0.0)) or None,
        running=int(metrics.get(_RUNNING, 0)),
        queued=int(metrics.get(_QUEUED, 0)),
    )
