"""`tide bench spool`: the spool beside a plain memcpy and LMDB."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.bench_parts import Part, PartGuards
from tide_cli.cli.load_options import Page
from tide_cli.cli.where import Json, path_option
from tide_cli.errors import UsageError

if TYPE_CHECKING:
    from tide_cli.bench.progress import Progress


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
    guard: PartGuards = None,
    html: Page = None,
    json: Json = False,
) -> int:
    """The spool beside a plain memcpy and LMDB.

    How fast it takes rows in and gives them back. The row sizes are those of SmolLM2-135M (576) and gpt-oss-120b (2880)
    unless --hidden says otherwise. Exit code 1 where a --guard such as '576:ingest_to_memcpy>=0.5' is not met.
    """
    from tide_cli.bench.spool import SpoolBench, spool_report
    from tide_cli.setting_values import parse_size

    try:
        size_bytes = parse_size(size)
    except ValueError as error:
        raise UsageError(f"--size: {error}") from None
    sizes = list(dict.fromkeys(hidden or [576, 2880]))
    bench = SpoolBench(seconds, size_bytes, sizes, rate, folder)
    bench.check()

    def run(progress: Progress) -> dict[str, Any]:
        progress.say("measuring")
        return spool_report(bench.run(progress.tick))

    asked = {"seconds": seconds, "size": size_bytes, "rate": rate}
    return Part.asked("spool", guard, html, json, sizes=sizes).measure(run, _show, asked)


def _show(found: Mapping[str, Any]) -> None:
    from rich.console import Console

    from tide_cli.bench.spool_table import as_table

    Console().print(as_table(found["by_hidden_size"]))
