"""`tide bench profile`: what the speculation policy expects, and what comes out."""

from __future__ import annotations

from typing import Annotated

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.bench_parts import MaxTokens, Part, PartGuards, Rounds, Seed, Workload
from tide_cli.cli.load_options import Page, numbers
from tide_cli.cli.setting_options import Draft, Dtype, Target
from tide_cli.cli.where import Json


@bench_app.command("profile")
def profile(
    workload: Workload = None,
    batches: Annotated[
        str, typer.Option("--batches", metavar="N,M", help="Requests that decode together: 1, 2, 4, 8, 16, 32 or 64.")
    ] = "1,2,4,8",
    rounds: Rounds = 3,
    max_tokens: MaxTokens = 64,
    draft: Draft = None,
    target: Target = None,
    dtype: Dtype = None,
    seed: Seed = 0,
    guard: PartGuards = None,
    html: Page = None,
    json: Json = False,
) -> int:
    """What the speculation policy expects, and what comes out.

    By batch size, from measured round times. A target without a published draft has one that nobody has trained: little
    of it is accepted, which tells the costs but not what a good draft would bring. Exit code 1 where requests failed or
    a batch size has no figure, or where a --guard such as 'max_error<=0.1' is not met.
    """
    from tide_cli.bench.load import load_requests
    from tide_cli.bench.options import options_of
    from tide_cli.bench.profile import ProfileBench, check_batches

    sizes = [int(size) for size in numbers(batches, "--batches", whole=True)]
    check_batches(sizes)
    part = Part.asked("profile", guard, html, json, sizes=sizes)
    wanted = load_requests(workload, max(sizes), max_tokens, seed)
    settings = {"target": target, "dtype": dtype, "draft": draft}
    bench = ProfileBench(wanted, sizes, rounds, settings)
    return part.measure(bench.run, options=options_of(bench, workload=workload, seed=seed))
