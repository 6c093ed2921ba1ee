"""`tide bench profile`: what the speculation policy expects of a batch size, and what comes out.

One engine; its round times are measured first, as for the policy. Then streams that begin together decode in turns with
no draft step and with the largest number of them. Expected is the acceptance length of those answers times the ratio of
the two round times; measured is the ratio of the output rates while all streams were running.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from tide_cli.bench.arms import send, warm_engines
from tide_cli.bench.client import Answer
from tide_cli.bench.engines import Appliance
from tide_cli.bench.figures import acceptance_length, whole
from tide_cli.bench.progress import Progress
from tide_cli.bench.requests import Request
from tide_cli.bench.rounds import Spread, in_turns, ratios
from tide_cli.errors import TideError

PLAIN, SPECULATING = "plain", "speculating"
_AS_THE_POLICY_SAYS = -1

Passes = Mapping[str, Sequence[Answer]]


@dataclass(frozen=True)
class ProfileBench:
    """requests: as many as the largest of `batches`. settings: of the engine."""

    requests: Sequence[Request]
    batches: Sequence[int]
    rounds: int
    settings: Mapping[str, Any]

    def run(self, progress: Progress) -> dict[str, Any]:
        """`profile_figures`. Nothing is left behind. Raises TideError or UsageError."""
        measured: dict[int, list[Passes]] = {batch: [] for batch in self.batches}
        common = {"capture": False, "speculation": "auto", **self.settings}
        with warm_engines({"engine": {}}, common, max(self.batches), progress) as appliances:
            appliance = appliances["engine"]
            progress.say("measuring round times")
            profile = appliance.engine.measure()
            steps = max(row["steps"] for row in profile["rounds"])
            for place, batch in enumerate(self.batches):
                contestants = {
                    PLAIN: lambda batch=batch: self._pass(appliance, batch, 0),
                    SPECULATING: lambda batch=batch: self._pass(appliance, batch, steps),
                }
                measured[batch] += in_turns(contestants, seconds=0, least=self.rounds, clock=time.monotonic)
                progress.tick(place + 1, len(self.batches))
                progress.say(f"  {batch} at a time: done")
            appliance.engine.set_state(tide_steps=_AS_THE_POLICY_SAYS)
        return profile_figures(profile, measured)

    def _pass(self, appliance: Appliance, batch: int, steps: int) -> list[Answer]:
        appliance.engine.set_state(tide_steps=steps)
        appliance.flush_cache()
        return send(appliance, self.requests[:batch], batch, captured=False)


def profile_figures(profile: Mapping[str, Any], measured: Mapping[int, Sequence[Passes]]) -> dict[str, Any]:
    """{batches: [{batch, steps, predicted, measured, spread: quartiles of the rounds, error: predicted / measured - 1,
    acceptance_length, round_ms, plain_round_ms}], mean_error, max_error: of the magnitudes, conditions, profile}.

    profile: what the engine's measurement gives. Batch sizes that it lacks are left out. TideError where none is left.
    """
    seconds = {(row["batch"], row["steps"]): row["seconds"] for row in profile["rounds"]}
    steps = max(step for _, step in seconds)
    batches = []
    for batch, rounds in measured.items():
        if (batch, steps) not in seconds:
            continue
        length = acceptance_length([answer for one in rounds for answer in one[SPECULATING]])
        rates = {name: [together_rate(one[name]) for one in rounds] for name in (PLAIN, SPECULATING)}
        if length is None or None in (*rates[PLAIN], *rates[SPECULATING]):
            continue
        predicted = length * seconds[batch, 0] / seconds[batch, steps]
        ratio: Spread = ratios(rates[SPECULATING], rates[PLAIN])  # type: ignore[arg-type]
        batches.append(
            {
                "batch": batch,
                "steps": steps,
                "predicted": predicted,
                "measured": ratio.median,
                "spread": [ratio.low, ratio.high],
                "error": predicted / ratio.median - 1,
                "acceptance_length": length,
                "round_ms": seconds[batch, steps] * 1e3,
                "plain_round_ms": seconds[batch, 0] * 1e3,
            }
        )
    if not batches:
        raise TideError("nothing could be compared", remedy="choose longer answers with --max-tokens")
    errors = [abs(one["error"]) for one in batches]
    return {
        "batches": batches,
        "mean_error": mean(errors),
        "max_error": max(errors),
        "conditions": dict(profile["conditions"]),
        "profile": list(profile["rounds"]),
    }


def together_rate(answers: Sequence[Answer]) -> float | None:
    """Tokens per second from the moment that the last stream began to the moment that the first one ended."""
    running = [answer for answer in whole(answers) if answer.first is not None and answer.last is not None]
    begin = max((answer.first or 0.0 for answer in running), default=0.0)
    end = min((answer.last or 0.0 for answer in running), default=0.0)
    if end <= begin:
        return None
    tokens = sum(begin < moment <= end for answer in running for moment in answer.token_times)
    return tokens / (end - begin) if tokens else None
