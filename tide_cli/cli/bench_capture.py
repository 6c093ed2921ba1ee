"""`tide bench capture`: what storing the traffic's hidden states costs it."""

from __future__ import annotations

from typing import Annotated

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.bench_parts import MaxTokens, Part, PartGuards, Rounds, Seed, Workload
from tide_cli.cli.load_options import MOST_REQUESTS, Page
from tide_cli.cli.setting_options import Dtype, Target
from tide_cli.cli.where import Json


@bench_app.command("capture")
def capture(
    workload: Workload = None,
    requests: Annotated[int, typer.Option("--requests", min=1, max=MOST_REQUESTS, help="Requests of a pass.")] = 16,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=64, help="Requests at a time.")] = 4,
    rounds: Rounds = 5,
    max_tokens: MaxTokens = 64,
    target: Target = None,
    dtype: Dtype = None,
    seed: Seed = 0,
    guard: PartGuards = None,
    html: Page = None,
    json: Json = False,
) -> int:
    """What capture costs the traffic.

    Storing the traffic's hidden states on and off, in turns. Exit code 1 where requests failed, or where a --guard such
    as 'throughput_ratio>=0.99' is not met.
    """
    from tide_cli.bench.capture import CaptureBench
    from tide_cli.bench.load import load_requests
    from tide_cli.bench.options import options_of

    part = Part.asked("capture", guard, html, json)
    wanted = load_requests(workload, requests, max_tokens, seed)
    bench = CaptureBench(wanted, concurrency, rounds, {"target": target, "dtype": dtype})
    return part.measure(bench.run, options=options_of(bench, workload=workload, seed=seed))
