"""`tide bench capture`: what storing the hidden states of the traffic costs the traffic.

Two engines with the same draft and the same cores, one with capture and one without, answer the same requests in turns;
nothing is trained. Both prefix caches are emptied before each pass.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tide_cli.bench.arms import send, warm_engines
from tide_cli.bench.client import Answer
from tide_cli.bench.figures import pass_figures, reasons
from tide_cli.bench.progress import PassTicks, Progress
from tide_cli.bench.requests import Request
from tide_cli.bench.rounds import Spread, in_turns, ratios

ON, OFF = "on", "off"
_TOLD = ("output_tok_s", "itl_p50_ms", "itl_p95_ms", "ttft_p50_ms", "acceptance_length")


@dataclass(frozen=True)
class CaptureBench:
    """settings: of both engines."""

    requests: Sequence[Request]
    concurrency: int
    rounds: int
    settings: Mapping[str, Any]

    def run(self, progress: Progress) -> dict[str, Any]:
        """`capture_figures`. Nothing is left behind. Raises TideError or UsageError."""
        rounds: list[dict[str, list[Answer]]] = []
        wanted = {ON: {"capture": True}, OFF: {"capture": False}}
        common = {"speculation": "on", **self.settings}
        with warm_engines(wanted, common, self.concurrency, progress) as appliances:
            passes = PassTicks(progress, 2 * self.rounds)

            def turn(name: str) -> list[Answer]:
                appliance, on_answer = appliances[name], passes.begin(len(self.requests))
                appliance.flush_cache()
                return send(appliance, self.requests, self.concurrency, captured=True, on_answer=on_answer)

            contestants = {name: lambda name=name: turn(name) for name in (ON, OFF)}
            for results in in_turns(contestants, seconds=0, least=self.rounds, clock=time.monotonic):
                rounds.append(results)
                rates = {name: pass_figures(answers)["output_tok_s"] for name, answers in results.items()}
                progress.say(f"  round {len(rounds)} of {self.rounds}: {rates[ON]:.1f} and {rates[OFF]:.1f} tok/s")
            stored = appliances.stored(ON)
        return capture_figures(rounds) | {
            "concurrency": self.concurrency,
            "stored_tokens": stored.get("tokens", 0),
            "dropped_requests": sum(count for name, count in stored.items() if name.startswith("dropped_")),
        }


def capture_figures(rounds: Sequence[Mapping[str, Sequence[Answer]]]) -> dict[str, Any]:
    """{throughput_ratio, itl_p95_ratio: with capture over without, medians over the rounds' pairs; spread: the
    quartiles around each, None without a pair; on, off: medians of the passes; rounds, requests, errors, reasons, same:
    answers with the same text in both}."""
    of = {name: [pass_figures(results[name]) for results in rounds] for name in (ON, OFF)}

    def ratio(figure: str) -> Spread | None:
        both = [(on[figure], off[figure]) for on, off in zip(of[ON], of[OFF], strict=True)]
        known = [pair for pair in both if all(pair)]
        return ratios(*zip(*known, strict=True)) if known else None

    found = {"throughput_ratio": ratio("output_tok_s"), "itl_p95_ratio": ratio("itl_p95_ms")}
    texts = [(one.text, other.text) for results in rounds for one, other in zip(results[ON], results[OFF], strict=True)]
    return {name: spread.median if spread else None for name, spread in found.items()} | {
        "spread": {name: [spread.low, spread.high] if spread else None for name, spread in found.items()},
        **{name: {figure: _median([one[figure] for one in of[name]]) for figure in _TOLD} for name in (ON, OFF)},
        "rounds": len(rounds),
        "requests": len(texts),
        "errors": sum(one["errors"] for name in (ON, OFF) for one in of[name]),
        "reasons": reasons(answer for results in rounds for side in results.values() for answer in side),
        "same": sum(one == other for one, other in texts),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return Spread.of(known).median if known else None
