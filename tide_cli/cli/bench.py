"""Measurements on this machine; each prints a table, or with --json the figures and what they were taken under."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tide_cli.cli.app import app, command_group
from tide_cli.cli.output import complain, print_json
from tide_cli.cli.progress import progress
from tide_cli.cli.where import Json, path_option
from tide_cli.errors import UsageError

bench_app = command_group("Measurements on this machine.")
app.add_typer(bench_app, name="bench")


@bench_app.command("spool")
def spool(
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=1,
            max=86400,
            help="Time to measure; making the files comes on top, and there are three rounds at least.",
        ),
    ] = 40,
    size: Annotated[str, typer.Option("--size", help="Size of each store.")] = "256MiB",
    hidden: Annotated[
        list[int] | None,
        typer.Option(
            "--hidden", help="Hidden size of the rows; may be given more than once.", show_default="576, 2880"
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Tokens per second of the steady run.")] = 6500,
    folder: Annotated[
        Path | None, path_option("--folder", "Where the stores lie meanwhile.", show_default="temporary folder")
    ] = None,
    json: Json = False,
) -> None:
    """The spool beside a plain memcpy and LMDB.

    How fast it takes rows in and gives them back. The row sizes are those of SmolLM2-135M (576) and gpt-oss-120b (2880)
    unless --hidden says otherwise.
    """
    from tide_cli.bench.report import busy_warning, make_report, take_environment
    from tide_cli.bench.spool import SpoolBench
    from tide_cli.setting_values import parse_size

    try:
        size_bytes = parse_size(size)
    except ValueError as error:
        raise UsageError(f"--size: {error}") from None
    bench = SpoolBench(seconds, size_bytes, hidden or [576, 2880], rate, folder)
    bench.check()
    environment = take_environment()
    if warning := busy_warning(environment):
        complain([warning])
    try:
        with progress("measuring") as tick:
            results = bench.run(tick)
    except KeyboardInterrupt:
        complain(["interrupted: nothing is left behind"])
        raise
    if json:
        print_json(make_report(environment, spool=results))
        return
    from rich.console import Console

    from tide_cli.bench.spool_table import as_table

    Console().print(as_table(results))
