"""A matrix that is gone on with: everything its file says is looked at before anything is started."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tide_cli.bench.drafts import digest
from tide_cli.bench.matrix import MODES, Load, MatrixPlan, Pass, order
from tide_cli.bench.page import conditions
from tide_cli.bench.results import Results
from tide_cli.drafts.manifest import WEIGHTS_FILE
from tide_cli.errors import UsageError, reason


def resume_matrix(path: Path) -> tuple[Results, MatrixPlan]:
    """The finished passes in `path`, and what is measured. UsageError where they are not what a matrix has kept."""
    kept = Results.resume(path, "matrix")
    try:
        plan = MatrixPlan.from_json(kept.head["plan"])
        _check(plan)
        conditions(kept.head["environment"], {})  # a report says them
        keys = [_key(plan, number, part) for number, part in enumerate(kept.parts, start=2)]
        twice = [key for key, times in Counter(keys).items() if times > 1]
        planned = set(order(plan, together=True))
        foreign = set(keys) - planned
        for key in (*twice, *foreign):
            number, mode, load = key
            wrong = "stands in it twice" if key in twice else "is no part of its plan"
            raise ValueError(f"the pass of {mode} at {load.words()} in round {number + 1} {wrong}")
        if planned - set(keys):  # a finished one is only shown
            _check_drafts(plan)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UsageError(f"{path} cannot be gone on with", why=reason(error), remedy="measure anew") from None
    return kept, plan


def _check(plan: MatrixPlan) -> None:
    """ValueError for a plan that the command line would not have made."""
    workload = plan.workload
    domains = workload["domains"]
    possible = {
        "modes": plan.modes and set(plan.modes) <= set(MODES) and len(set(plan.modes)) == len(plan.modes),
        "loads": plan.loads and len(set(plan.loads)) == len(plan.loads),
        "rounds": 1 <= plan.rounds <= 1000,
        "requests": plan.requests >= 2,
        "max_tokens": plan.max_tokens >= 1,
        "temperature": 0 <= plan.temperature <= 2,
        "seed": plan.seed >= 0,
        "timeout": plan.timeout > 0,
        "settings": set(plan.settings) == set(plan.modes),
        "workload": all(isinstance(text, str) for text in (workload["path"], workload["sha256"], *(domains or ()))),
    }
    for name, holds in possible.items():
        if not holds:
            raise ValueError(f"{name} is not what it should be")


def _check_drafts(plan: MatrixPlan) -> None:
    """ValueError where a draft is not the one any more that the passes were made with."""
    # one of several modes is read once: it may have gigabytes
    modes = {(draft["draft"], draft["sha256"]): mode for mode, draft in reversed(plan.drafts.items())}
    for (draft, sha256), mode in modes.items():
        weights = Path(draft or "") / WEIGHTS_FILE
        if sha256 and (not weights.is_file() or digest(weights) != sha256):
            raise ValueError(f"the draft of {mode}, {draft}, is not there any more or was changed")


def _key(plan: MatrixPlan, line: int, part: dict[str, Any]) -> tuple[int, str, Load]:
    try:
        one = Pass.from_json(part)
        if len(one.answers) != plan.requests:
            raise ValueError(f"{len(one.answers)} answers to {plan.requests} requests")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"line {line}: {reason(error)}") from None
    return one.key
