"""What a matrix measures, and its passes as they are kept. Pure.

A pass is one mode under one load in one round. Every mode answers the same requests in each pass, and each round begins
with another mode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tide_cli.bench.client import Answer
from tide_cli.bench.requests import SLOWEST
from tide_cli.json_files import checked
from tide_cli.setting_values import MOST_RUNNING

MODES = ("plain", "static", "adapted", "policy")


@dataclass(frozen=True)
class Load:
    """Requests at a time, or requests per second that arrive whatever has been answered; the other one is None.

    ValueError for other numbers of either than can be.
    """

    concurrency: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        at_a_time = self.rate is None and self.concurrency is not None and 1 <= self.concurrency <= MOST_RUNNING
        a_second = self.concurrency is None and self.rate is not None and self.rate >= SLOWEST
        if not (at_a_time or a_second):
            raise ValueError(f"a load is 1 to {MOST_RUNNING} requests at a time, or from {SLOWEST} a second on")

    def words(self) -> str:
        return f"concurrency {self.concurrency}" if self.concurrency else f"{self.rate:g} requests/s"


@dataclass(frozen=True)
class MatrixPlan:
    """Everything that decides what is measured; a resumed measurement goes on with the same.

    drafts: mode -> {draft, sha256} of those that have one; draft None: the target's own. workload: {path, sha256,
    domains}. requests: of each pass. timeout: seconds of one request. settings: mode -> {setting: value} of those that
    its engine goes by.
    """

    target: str
    target_revision: str | None
    modes: tuple[str, ...]
    drafts: dict[str, dict[str, Any]]
    loads: tuple[Load, ...]
    rounds: int
    workload: dict[str, Any]
    requests: int
    max_tokens: int
    temperature: float
    seed: int
    timeout: float
    settings: dict[str, dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MatrixPlan:
        """Raises ValueError where it is none."""
        return checked(cls, values)


@dataclass(frozen=True)
class _Observed:
    """What observe.py sees."""

    figures: dict[str, int | float | dict[str, int | float] | None]


@dataclass(frozen=True)
class Pass:
    """One pass. answers: in the order of the requests, moments from its beginning; observed: see observe.py."""

    round: int
    mode: str
    load: Load
    answers: tuple[Answer, ...]
    observed: dict[str, Any]

    @property
    def key(self) -> tuple[int, str, Load]:
        return self.round, self.mode, self.load

    def to_json(self) -> dict[str, Any]:
        """Without the texts: a digest of each answer's stands for it."""
        begun = min((answer.sent for answer in self.answers), default=0.0)
        return {
            "round": self.round,
            "mode": self.mode,
            "load": asdict(self.load),
            "observed": self.observed,
            "answers": [_answer_to_json(answer, begun) for answer in self.answers],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Pass:
        """Raises ValueError, TypeError or KeyError where it is none."""
        answers = [_answer_from_json(answer) for answer in values["answers"]]
        checked(_Observed, {"figures": values["observed"]})
        return checked(cls, {**values, "answers": answers})


def order(plan: MatrixPlan, *, together: bool) -> list[tuple[int, str, Load]]:
    """The passes in turn: (round, mode, load). together: all engines stand at once, so that modes alternate most.

    Else a mode's engine is started once a round and answers under every load before it is ended.
    """
    found = []
    for number in range(plan.rounds):
        shift = number % len(plan.modes)
        modes = plan.modes[shift:] + plan.modes[:shift]
        if together:
            found += [(number, mode, load) for load in plan.loads for mode in modes]
        else:
            found += [(number, mode, load) for mode in modes for load in plan.loads]
    return found


def _answer_to_json(answer: Answer, begun: float) -> dict[str, Any]:
    return {
        "domain": answer.request.domain,
        "sent": round(answer.sent - begun, 6),
        "times": [round(moment - begun, 6) for moment in answer.token_times],
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "verify_steps": answer.verify_steps,
        "drafts": answer.drafts,
        "accepted_steps": list(answer.accepted_steps),
        "text": hashlib.sha256(answer.text.encode(errors="surrogatepass")).hexdigest()[:16],
        "error": answer.error,
        "timed_out": answer.timed_out,
    }


def _answer_from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an Answer, unchecked."""
    times = values["times"]
    return {
        **values,
        "request": {"messages": (), "max_tokens": 0, "domain": values["domain"]},
        "first": times[0] if times else None,
        "last": times[-1] if times else None,
        "token_times": times,
    }
