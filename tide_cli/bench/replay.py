"""`tide replay`: a workload as traffic of a running appliance, at the moments of a trace where there is one."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tide_cli.bench.requests import Request, draw, poisson_arrivals
from tide_cli.errors import UsageError, reason
from tide_cli.printable import many
from tide_cli.regular_files import read_named

_COLUMNS = ("timestamp_s", "output_tokens")


@dataclass(frozen=True)
class Arrival:
    """A row of a trace. at: seconds from its beginning; output_tokens, input_tokens: how long answer and prompt were.

    input_tokens is None where the trace does not tell.
    """

    at: float
    output_tokens: int
    input_tokens: int | None = None


def read_trace(path: Path) -> list[Arrival]:
    """A CSV file with the columns timestamp_s, output_tokens and perhaps input_tokens, in order of time; other columns
    are ignored.

    Raises UsageError naming the line.
    """
    try:
        rows = csv.DictReader(io.StringIO(read_named(path, most=2**28).removeprefix("\ufeff"), newline=""))
        absent = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
        if absent:
            raise UsageError(f"the trace {path} has no column {absent[0]}", remedy=f"it needs {', '.join(_COLUMNS)}")
        found = [_arrival(path, rows.line_num, row) for row in rows]
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"cannot read the trace {path}", why=reason(error)) from None
    if not found:
        raise UsageError(f"the trace {path} has no rows")
    begun = found[0].at
    for before, after in itertools.pairwise(found):
        if after.at < before.at:
            raise UsageError(f"the trace {path} is not in order of time", why=f"{after.at:g} follows {before.at:g}")
    return [replace(one, at=one.at - begun) for one in found]


def schedule(
    requests: Sequence[Request],
    *,
    count: int | None,
    trace: Sequence[Arrival] | None,
    rate: float | None,
    speed: float,
    seed: int,
    mixed: bool = False,
) -> tuple[list[Request], list[float] | None]:
    """(what is sent, the second at which each arrives); no seconds where neither a trace nor a rate is given.

    count: requests in all, None for as many as the workload or the trace has. The workload begins again when it is
    over; a trace does not: UsageError for more than it has. An answer may be as long as in the trace, no longer than
    the request says. speed: 2 is twice as fast. seed: of arrivals at a rate, and of the order where it is `mixed`,
    evenly over the domains.
    """
    number = count or len(requests if trace is None else trace)
    if trace is not None and number > len(trace):
        raise UsageError(f"the trace has {many(len(trace), 'row')}, {many(number, 'request')} are asked for")
    ordered = draw(requests, number, seed) if mixed else requests
    sent = list(itertools.islice(itertools.cycle(ordered), number))
    if trace is None:
        return sent, None if rate is None else poisson_arrivals(number, rate * speed, seed)
    lengths = [max(1, arrival.output_tokens) for arrival in trace[:number]]
    sent = [replace(one, max_tokens=min(one.max_tokens, length)) for one, length in zip(sent, lengths, strict=True)]
    return sent, [arrival.at / speed for arrival in trace[:number]]


def _arrival(path: Path, line: int, row: dict[str, str]) -> Arrival:
    try:
        asked = row.get("input_tokens")
        found = Arrival(float(row["timestamp_s"]), int(row["output_tokens"]), int(asked) if asked else None)
        if not 0 <= found.at < float("inf") or found.output_tokens < 0:
            raise ValueError
    except (TypeError, ValueError):
        raise UsageError(
            f"{path}, line {line}", why="timestamp_s takes seconds, the numbers of tokens are whole"
        ) from None
    return found
