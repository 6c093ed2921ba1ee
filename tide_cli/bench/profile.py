"""`tide bench profile`: what the speculation policy expects of a batch size, and what comes out.

One engine; its round times are measured first, as for the policy. Then streams that begin together decode in turns with
no draft step and with the largest number of them. Expected is what a round of those answers brought times the ratio of
the two round times; measured is the ratio of the output rates while all streams were running. Neither counts an
answer's first token, which comes of its prompt and not of a round.
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
from tide_cli.bench.figures import acceptance_length, reasons, whole
from tide_cli.bench.progress import PassTicks, Progress
from tide_cli.bench.requests import Request
from tide_cli.bench.rounds import Spread, in_turns, ratios
from tide_cli.engine.plugin.profile import BATCHES
from tide_cli.errors import TideError, UsageError

PLAIN, SPECULATING = "plain", "speculating"
_AS_THE_POLICY_SAYS = -1

Passes = Mapping[str, Sequence[Answer]]


@dataclass(frozen=True)
class ProfileBench:
    """requests: as many as the largest of `batches`, which `check_batches` lets pass. settings: of the engine."""

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
            self._check_measured(profile["rounds"], steps)
            passes = PassTicks(progress, 2 * self.rounds * len(self.batches))
            for batch in self.batches:
                contestants = {
                    PLAIN: lambda batch=batch: self._pass(appliance, batch, 0, passes),
                    SPECULATING: lambda batch=batch: self._pass(appliance, batch, steps, passes),
                }
                measured[batch] += in_turns(contestants, seconds=0, least=self.rounds, clock=time.monotonic)
                progress.say(f"  {batch} at a time: done")
            appliance.engine.set_state(tide_steps=_AS_THE_POLICY_SAYS)
        return profile_figures(profile, measured)

    def _check_measured(self, rounds: Sequence[Mapping[str, Any]], steps: int) -> None:
        """TideError where the engine has not measured a batch size, before minutes are spent on it."""
        known = sorted({row["batch"] for row in rounds if row["steps"] == steps} & set(BATCHES))
        absent = [batch for batch in self.batches if batch not in known]
        if absent:
            raise TideError(
                f"the engine has not measured rounds of {_list(absent)} requests",
                why="so many did not run together",
                remedy=f"--batches {_list(known)} can be compared" if known else None,
            )

    def _pass(self, appliance: Appliance, batch: int, steps: int, passes: PassTicks) -> list[Answer]:
        appliance.engine.set_state(tide_steps=steps)
        appliance.flush_cache()
        return send(appliance, self.requests[:batch], batch, captured=False, on_answer=passes.begin(batch))


def check_batches(batches: Sequence[int]) -> None:
    """UsageError for a batch size whose round times no engine is asked for."""
    unknown = [batch for batch in batches if batch not in BATCHES]
    if unknown:
        why = f"round times are measured at {_list(BATCHES)} requests"
        raise UsageError(f"--batches {_list(unknown)} cannot be compared", why=why)


def profile_figures(profile: Mapping[str, Any], measured: Mapping[int, Sequence[Passes]]) -> dict[str, Any]:
    """{batches: [{batch, steps, predicted, measured, spread: quartiles of the rounds, error: predicted / measured - 1,
    acceptance_length, round_tokens, round_ms, plain_round_ms}], left_out, mean_error, max_error: of the magnitudes,
    rounds, requests, errors, reasons: of all passes, conditions, profile}.

    profile: what the engine's measurement gives. left_out: batch sizes without a figure, because the engine has not
    measured their rounds or their streams did not run side by side. TideError where none is left.
    """
    seconds = {(row["batch"], row["steps"]): row["seconds"] for row in profile["rounds"]}
    steps = max(step for _, step in seconds)
    batches, left_out = [], []
    for batch, rounds in measured.items():
        answers = [answer for one in rounds for answer in one[SPECULATING]]
        tokens = round_tokens(answers)
        rates = {name: [together_rate(one[name]) for one in rounds] for name in (PLAIN, SPECULATING)}
        if (batch, steps) not in seconds or tokens is None or None in (*rates[PLAIN], *rates[SPECULATING]):
            left_out.append(batch)
            continue
        predicted = tokens * seconds[batch, 0] / seconds[batch, steps]
        ratio: Spread = ratios(rates[SPECULATING], rates[PLAIN])  # type: ignore[arg-type]
        batches.append(
            {
                "batch": batch,
                "steps": steps,
                "predicted": predicted,
                "measured": ratio.median,
                "spread": [ratio.low, ratio.high],
                "error": predicted / ratio.median - 1,
                "acceptance_length": acceptance_length(answers),
                "round_tokens": tokens,
                "round_ms": seconds[batch, steps] * 1e3,
                "plain_round_ms": seconds[batch, 0] * 1e3,
            }
        )
    if not batches:
        raise TideError("nothing could be compared", remedy="choose longer answers with --max-tokens")
    errors = [abs(one["error"]) for one in batches]
    sent = [answer for rounds in measured.values() for one in rounds for side in one.values() for answer in side]
    return {
        "batches": batches,
        "left_out": left_out,
        "mean_error": mean(errors),
        "max_error": max(errors),
        "rounds": max(map(len, measured.values())),
        "requests": len(sent),
        "errors": sum(answer.error is not None for answer in sent),
        "reasons": reasons(sent),
        "conditions": dict(profile["conditions"]),
        "profile": list(profile["rounds"]),
    }


def round_tokens(answers: Sequence[Answer]) -> float | None:
    """Tokens that a verify step brought to a stream; None without one. An answer's first token comes of its prompt."""
    measured = [answer for answer in whole(answers) if answer.verify_steps]
    steps = sum(answer.verify_steps or 0 for answer in measured)
    return sum(answer.completion_tokens - 1 for answer in measured) / steps if steps else None


def together_rate(answers: Sequence[Answer]) -> float | None:
    """Tokens per second from the moment that the last stream began to the moment that the first one ended."""
    running = [answer for answer in whole(answers) if answer.first is not None and answer.last is not None]
    begin = max((answer.first or 0.0 for answer in running), default=0.0)
    end = min((answer.last or 0.0 for answer in running), default=0.0)
    if end <= begin:
        return None
    tokens = sum(begin < moment <= end for answer in running for moment in answer.token_times)
    return tokens / (end - begin) if tokens else None


def _list(batches: Sequence[int]) -> str:
    return ",".join(map(str, batches))
