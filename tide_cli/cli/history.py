"""`tide history`: what the appliance did, as a table, as data or as a plot."""

from __future__ import annotations

import math
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import complain, print_json, print_table
from tide_cli.cli.spool_options import parse_age
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import TideError, UsageError

_LINES = 24  # of the table, about
_SIZE = (78, 16)  # of a plot where the width of the terminal is not known; its height always


class Figure(StrEnum):
    """What can be plotted."""

    acceptance = "acceptance"
    output = "output"
    input = "input"
    running = "running"
    queued = "queued"
    ttft = "ttft"
    itl = "itl"
    kv = "kv"
    spool = "spool"
    dropped = "dropped"
    version = "version"
    steps = "steps"


# field of a row, title of the plot, heading in the table, digits
_FIGURES = {
    Figure.acceptance: ("acceptance_length", "acceptance length", "accepted", 2),
    Figure.output: ("output_tok_s", "output, tokens/s", "out tok/s", 1),
    Figure.input: ("input_tok_s", "input, tokens/s", "in tok/s", 1),
    Figure.running: ("running", "requests running", "running", 1),
    Figure.queued: ("queued", "requests queued", "queued", 1),
    Figure.ttft: ("ttft_p95_ms", "time to first token, p95, ms", "ttft p95 ms", 0),
    Figure.itl: ("itl_p95_ms", "time between tokens, p95, ms", "itl p95 ms", 0),
    Figure.kv: ("kv_use", "KV cache taken, 0 to 1", "kv", 2),
    Figure.spool: ("spool_fill", "spool taken, 0 to 1", "spool", 2),
    Figure.dropped: ("dropped", "requests dropped", "dropped", 0),
    Figure.version: ("version", "served draft", "draft", 0),
    Figure.steps: ("draft_steps", "draft steps", "steps", 0),
}


@app.command()
def history(
    since: Annotated[
        float, typer.Option("--since", parser=parse_age, metavar="AGE", help="How far back, e.g. 30m, 2h or 7d.")
    ] = "1h",  # type: ignore[assignment]  # the parser takes the default, too
    step: Annotated[
        str, typer.Option("--step", help="Seconds of a row: 1, 10, 60, or auto, the finest kept.")
    ] = "auto",
    plot: Annotated[
        Figure | None, typer.Option("--plot", help="Draw one figure over time.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The plot as .svg or .png, with matplotlib.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Every row as comma-separated values.")] = False,
    json: Json = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Acceptance, throughput and the rest over time.

    Also after the appliance's end.
    """
    from tide_cli.supervisor.recording import take_history

    if csv + json + (plot is not None) > 1:
        raise UsageError("--csv, --json and --plot exclude each other")
    if output is not None and (plot is None or output.suffix.lower() not in (".svg", ".png")):
        raise UsageError("--output takes a plot, as FILE.svg or FILE.png", remedy="add --plot acceptance")
    table = not (csv or json or plot)
    found = take_history(appliance_paths(state_dir, config), since, step, _LINES if table else None)
    if json:
        print_json(found)
    elif csv:
        _print_csv(found["rows"])
    elif plot:
        _plot(found, plot, since, output)
    else:
        _print(found)


def _print_csv(rows: list[dict[str, Any]]) -> None:
    import csv
    import sys

    from tide_cli.telemetry.rows import FIGURES

    writer = csv.DictWriter(sys.stdout, FIGURES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _print(found: dict[str, Any]) -> None:
    """A line for each span, the newest last, with what happened in it or since the one before."""
    if not found["rows"]:
        print("no history in this time")
        return
    lines: list[list[object]] = []
    marks = list(found["marks"])
    for row in found["rows"]:
        end = row["time"] // found["step"] * found["step"] + found["step"]
        told = [mark["text"] for mark in marks if mark["time"] < end]
        marks = marks[len(told) :]
        moment = time.strftime("%d %b %H:%M:%S", time.localtime(row["time"]))
        lines.append([moment, *(_cell(row[field], digits) for field, _, _, digits in _FIGURES.values()), _last(told)])
    print_table(("time", *(heading for _, _, heading, _ in _FIGURES.values()), "what happened"), lines)


def _cell(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _last(told: list[str]) -> str:
    return (told[-1] if len(told) == 1 else f"{told[-1]} (and {len(told) - 1} more)") if told else ""


def _plot(found: dict[str, Any], figure: Figure, since: float, output: Path | None) -> None:
    field, title, _, digits = _FIGURES[figure]
    points = [(row["time"], row[field]) for row in found["rows"] if row[field] is not None]
    marks = [(mark["time"], mark["kind"]) for mark in found["marks"]]
    if not points and output is not None:
        raise TideError(f"{output} is not written", why=f"there is no {title} in this time", remedy="look further back")
    if not points:
        print(f"no {title} in this time")
        return
    if output is not None:
        from tide_cli.dashboard.picture import draw

        draw(points, marks, title, gap=3.0 * found["step"], file=output)
        complain([f"the plot is in {output}"])
        return
    from rich.console import Console
    from rich.text import Text

    from tide_cli.dashboard.plot import LONGEST_GAP, Axes, nice_ceiling
    from tide_cli.dashboard.plot import plot as lines
    from tide_cli.dashboard.words import duration

    console = Console()
    width = console.width if console.is_terminal else _SIZE[0]
    now, most = time.time(), max(value for _, value in points)
    lengths = figure is Figure.acceptance  # of 1 to draft steps + 1
    axes = Axes(
        since=now - since,
        until=now,
        low=1.0 if lengths else 0.0,
        high=max(1.5, math.ceil(2 * most) / 2) if lengths else nice_ceiling(most),
        show=lambda value: f"{value:.{digits}f}",
        left=f"-{duration(since)}",
        gap=max(LONGEST_GAP, 3.0 * found["step"], 2.0 * since / width),
    )
    console.print(Text(title, style="bold"))
    for line in lines(points, axes, width, _SIZE[1], marks, ascii=console.encoding != "utf-8"):
        console.print(line, no_wrap=True)
