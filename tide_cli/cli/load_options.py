"""Options that several commands which send load have in common, and how their values are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.output import complain
from tide_cli.cli.where import path_option
from tide_cli.errors import ExitCode, UsageError
from tide_cli.setting_values import MOST_RUNNING

if TYPE_CHECKING:
    from tide_cli.bench.matrix import Load

Domains = Annotated[
    str | None,
    typer.Option("--domains", metavar="A,B", help="Only these domains.", show_default="all of the workload"),
]
MOST_REQUESTS = 100_000  # of one part of a measurement; more is a slip, and would fill the memory
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer, in tokens.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0, max=2, help="Sampling temperature; 0 is greedy.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a request may take.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw of requests and of arrivals.")]
Guards = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="GUARD",
        help="A bound such as 'itl_p95<=1.05x'; exit code 1 where it is not met. May be given more than once.",
        show_default="none",
    ),
]
Page = Annotated[Path | None, path_option("--html", "Also write a report with plots.", "FILE")]


def names(text: str | None, option: str) -> list[str] | None:
    """'a,b' -> ['a', 'b']. Raises UsageError for an empty name or one that stands twice."""
    if text is None:
        return None
    found = [name.strip() for name in text.split(",")]
    if "" in found or len(set(found)) < len(found):
        raise UsageError(f"{option} {text!r} is not a list of names", remedy="write for example code,sql")
    return found


def numbers(text: str, option: str, *, whole: bool) -> list[float]:
    """'1,4' -> [1, 4]: requests at a time where `whole`, else a second. UsageError for others, or one twice."""
    from tide_cli.bench.requests import SLOWEST

    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if whole:
        kind = f"whole numbers from 1 to {MOST_RUNNING}"
        usable = all(one in range(1, MOST_RUNNING + 1) for one in found)
    else:
        kind = f"numbers from {SLOWEST} on"
        usable = all(math.isfinite(one) and one >= SLOWEST for one in found)
    if not found or not usable or len(set(found)) < len(found):
        raise UsageError(f"{option} {text!r} is not a list of {kind}", remedy="write for example 1,4")
    return found


def chosen_loads(concurrency: str | None, rate: str | None) -> list[Load]:
    """The loads of --concurrency or of --rate; 1 and 4 at a time where neither is given. Raises UsageError."""
    from tide_cli.bench.matrix import Load

    if concurrency is not None and rate is not None:
        raise UsageError("--concurrency and --rate exclude each other", remedy="measure one after the other")
    if rate is not None:
        return [Load(rate=one) for one in numbers(rate, "--rate", whole=False)]
    return [Load(concurrency=int(one)) for one in numbers(concurrency or "1,4", "--concurrency", whole=True)]


def verdict(findings: Iterable[Mapping[str, Any]]) -> int:
    """Names every guard that is not met, on stderr; the exit code."""
    failed = [finding["words"] for finding in findings if not finding["met"]]
    for words in failed:
        complain([words])
    return int(ExitCode.FAILED if failed else ExitCode.DONE)
