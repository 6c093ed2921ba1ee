"""`tide demo`: watch a draft learn, and measure what it brought."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tide_cli.cli.app import app
from tide_cli.cli.where import Json, StateDir
from tide_cli.errors import ExitCode


@app.command()
def demo(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="Minutes of traffic at most.")] = 15,
    workload: Annotated[
        Path | None,
        typer.Option("--workload", help="Prompts: JSONL with OpenAI `messages`.", show_default="generated"),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=64, help="Requests at a time.")] = 4,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary state folder.")] = False,
    state_dir: StateDir = None,
    json: Json = False,
) -> int:
    """Watch a draft learn, and measure what it brought.

    Serves the embedded target, trains its draft on generated traffic, and compares the drafts. Ends after the first
    deployed improvement. Runs in a temporary folder, which is removed at the end, or in --state-dir, which stays. Exit
    code 1 without an improvement.
    """
    from rich.console import Console

    from tide_cli.demo.report import as_json, as_table, verdict
    from tide_cli.demo.runner import DemoOptions, run_demo
    from tide_cli.demo.screen import make_screen

    console = Console(stderr=json)
    options = DemoOptions(minutes, workload, concurrency, keep, state_dir)
    try:
        result = run_demo(options, make_screen(console))
    except KeyboardInterrupt:
        kept = " its folder stays" if options.stays else " nothing is left behind"
        console.print(f"interrupted: the demo has ended,{kept}")
        raise
    console.print(as_table(result))
    console.print(verdict(result), highlight=False, soft_wrap=True)
    console.print(
        "`tide up` serves a model and goes on like this with your own requests.", highlight=False, soft_wrap=True
    )
    if json:
        print(as_json(result), flush=True)
    return int(ExitCode.DONE if result.improved else ExitCode.FAILED)
