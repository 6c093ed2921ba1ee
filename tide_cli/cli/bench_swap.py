"""`tide bench swap`: whether running requests notice that the draft is replaced."""

from __future__ import annotations

from typing import Annotated

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.bench_parts import MaxTokens, Part, PartGuards, Rounds, Seed, Workload
from tide_cli.cli.load_options import Page
from tide_cli.cli.setting_options import Target
from tide_cli.cli.where import Json


@bench_app.command("swap")
def swap(
    workload: Workload = None,
    streams: Annotated[int, typer.Option("--streams", min=1, max=64, help="Requests that run at once.")] = 4,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two swaps.")] = 1.5,
    rounds: Rounds = 3,
    max_tokens: MaxTokens = 192,
    target: Target = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="auto, float32 or bfloat16.", show_default="that of the settings, else float32"),
    ] = None,
    seed: Seed = 0,
    guard: PartGuards = None,
    html: Page = None,
    json: Json = False,
) -> int:
    """Whether running requests notice a swap of the draft.

    Failures, changed texts, added pauses. Texts are compared with those of the same requests without swaps, which asks
    for float32 on a CPU. Exit code 1 where requests failed, a text differs, a swap was refused or none fell into a
    stream, or where a --guard such as 'added_gap_max_ms<=500' is not met.
    """
    from tide_cli.bench.engines import with_defaults
    from tide_cli.bench.load import load_requests
    from tide_cli.bench.options import options_of
    from tide_cli.bench.swap import SwapBench

    part = Part.asked("swap", guard, html, json)
    wanted = load_requests(workload, streams, max_tokens, seed)
    settings = with_defaults({"dtype": "float32"}, {"target": target, "dtype": dtype})
    bench = SwapBench(wanted, rounds, every, settings)
    return part.measure(bench.run, options=options_of(bench, workload=workload, seed=seed))
