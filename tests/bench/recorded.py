"""Passes of a matrix as if they had been measured: each token comes `step` seconds after the one before."""

from __future__ import annotations

from collections.abc import Mapping

from tide_cli.bench.client import Answer
from tide_cli.bench.matrix import Load, MatrixPlan, Pass
from tide_cli.bench.requests import Request

LOADS = (Load(concurrency=1), Load(concurrency=4))


def plan(*modes: str, rounds: int = 3, requests: int = 6) -> MatrixPlan:
    return MatrixPlan(
        target="smollm2-135m",
        target_revision="r1",
        modes=modes,
        drafts={"static": {"draft": "/drafts/v0000", "sha256": "0" * 64}} if "static" in modes else {},
        loads=LOADS,
        rounds=rounds,
        workload={"path": "/workload", "domains": ["code", "sql"], "sha256": "f" * 64},
        requests=requests,
        max_tokens=64,
        temperature=0.0,
        seed=0,
        timeout=60.0,
        settings={mode: {"dtype": "auto", "draft_steps": 3, "gpus": None} for mode in modes},
    )


def recorded_pass(number: int, mode: str, load: Load, step: float, requests: int = 6, failing: int = 0) -> Pass:
    """Requests one after the other, of 8, 9, … tokens; two tokens a verify step unless the mode is plain."""
    answers, now = [], 0.0
    for place in range(requests):
        tokens = 8 + place
        times = tuple(now + step * (i + 1) for i in range(tokens))
        speculates = mode != "plain"
        answers.append(
            Answer(
                Request((), 64, domain=("code", "sql")[place % 2]),
                now,
                times[0],
                times[-1],
                times,
                30 * (place + 1),
                tokens,
                tokens // 2 if speculates else None,
                f"text {place}",
                "no whole answer within 60 s" if place < failing else None,
                3 * (tokens // 2) if speculates else None,
                (0, tokens // 2) if speculates else (),
                place < failing,
            )
        )
        now = times[-1]
    observed = {"memory": 1000 * (number + 1), "kv_use_peak": 0.1 * (number + 1), "client_cpu_share": 0.01}
    return Pass(number, mode, load, tuple(answers), observed)


def recorded(steps: Mapping[str, float], rounds: int = 3) -> list[Pass]:
    """Seconds a token by mode; the second of the rounds is half as fast for everybody."""
    return [
        recorded_pass(number, mode, load, step * (2 if number == 1 else 1))
        for number in range(rounds)
        for load in LOADS
        for mode, step in steps.items()
    ]
