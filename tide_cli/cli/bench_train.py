"""`tide bench train`: TIDE's trainer beside SpecForge's own command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.bench_parts import Part, PartGuards, Rounds
from tide_cli.cli.load_options import Page
from tide_cli.cli.setting_options import Target
from tide_cli.cli.where import Json, path_option


@bench_app.command("train")
def train(
    samples: Annotated[
        Path | None,
        path_option("--samples", "A folder made by `tide spool export`.", show_default="made-up samples"),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=4, max=10000, help="Made-up samples.")] = 32,
    rounds: Rounds = 3,
    passes: Annotated[int, typer.Option("--passes", min=2, max=1000, help="Passes over all samples, each round.")] = 2,
    target: Target = None,
    guard: PartGuards = None,
    html: Page = None,
    json: Json = False,
) -> int:
    """The trainer beside SpecForge's own command line.

    The same samples, draft and cores, in turns. Each goes over all samples --passes times, and the last time is timed.
    In the end both drafts are walked over the export's held-out samples. Without a GPU SpecForge's Triton loss is
    replaced by the same sum in plain torch, and it computes in float32 where TIDE does; all else of it is as it comes.
    Exit code 1 where a --guard such as 'ratio>=1' is not met.
    """
    from tide_cli.bench.options import options_of
    from tide_cli.bench.train import TrainBench

    part = Part.asked("train", guard, html, json, lengths=samples is not None)
    bench = TrainBench(rounds, passes, count, samples, {"target": target})
    return part.measure(bench.run, options=options_of(bench))
