"""What is looked at beside the answers of a pass: the engine's own figures, its memory, and the client's share."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tide_cli.bench.client import Answer
from tide_cli.bench.engines import Appliance
from tide_cli.bench.figures import inter_token, whole
from tide_cli.hardware.machine import take_inventory

_EVERY = 1.0  # seconds between two looks at the engine's metrics
# names as sglang 0.5.23 exports them (srt/observability/metrics_collector.py)
_KV_USE = "sglang:token_usage"
_HISTOGRAMS = {
    "ttft": "sglang:time_to_first_token_seconds",
    "itl": "sglang:inter_token_latency_seconds",
    "e2e": "sglang:e2e_request_latency_seconds",
}


class Observer:
    """Looks at an appliance from enter to exit; `result` then says what was seen."""

    def __init__(self, appliance: Appliance) -> None:
        self._appliance = appliance
        self._ended = threading.Event()
        self._kv_use: list[float] = []
        self._thread = threading.Thread(target=self._look, name="observe", daemon=True)

    def __enter__(self) -> Observer:
        self._before = self._appliance.metrics()
        self._rounds = self._round_counts()
        self._cpu, self._wall = time.thread_time(), time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._share = (time.thread_time() - self._cpu) / max(time.monotonic() - self._wall, 1e-9)
        self._ended.set()
        self._thread.join()

    def result(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """kv_use_peak: share of the KV cache; memory: bytes of the appliance's processes at the end; gpu_memory: bytes
        in use on all GPUs, None without one; client_cpu_share: of one core, spent on sending and timing; engine_X_ms
        and client_X_ms: means of the same latency by SGLang's metrics and by this client, for ttft, itl and e2e;
        rounds_by_steps: decode rounds by their number of draft steps, where the policy chooses it.
        """
        after, good = self._appliance.metrics(), whole(answers)
        gpus = take_inventory().gpus
        own = {
            "ttft": [one.first - one.sent for one in good if one.first is not None],
            "itl": inter_token(good),
            "e2e": [one.last - one.sent for one in good if one.last is not None],
        }
        rounds = self._round_counts()
        return {
            "kv_use_peak": max(self._kv_use, default=None),
            "memory": self._appliance.memory(),
            "gpu_memory": sum(gpu.memory_used for gpu in gpus) if gpus else None,
            "client_cpu_share": self._share,
            **{f"engine_{name}_ms": mean_between(self._before, after, metric) for name, metric in _HISTOGRAMS.items()},
            **{f"client_{name}_ms": 1e3 * sum(v) / len(v) if v else None for name, v in own.items()},
            "rounds_by_steps": {steps: count - self._rounds.get(steps, 0) for steps, count in rounds.items()} or None,
        }

    def _look(self) -> None:
        while not self._ended.wait(_EVERY):
            if (use := self._appliance.metrics().get(_KV_USE)) is not None:
                self._kv_use.append(use)

    def _round_counts(self) -> dict[str, int]:
        try:
            speculation = self._appliance.engine.speculation() or {}
        except httpx.HTTPError:
            return {}
        return dict(speculation["rounds"]) if speculation.get("adaptive") else {}


def mean_between(before: Mapping[str, float], after: Mapping[str, float], histogram: str) -> float | None:
    """Milliseconds: the mean of what a Prometheus histogram of seconds took in between two pages; None for nothing."""
    count = after.get(f"{histogram}_count", 0.0) - before.get(f"{histogram}_count", 0.0)
    seconds = after.get(f"{histogram}_sum", 0.0) - before.get(f"{histogram}_sum", 0.0)
    return 1e3 * seconds / count if count > 0 else None
