"""`tide bench compare`: two reports of one measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.load_options import Guards, verdict
from tide_cli.cli.output import complain, print_json, print_table
from tide_cli.cli.where import Json
from tide_cli.errors import UsageError
from tide_cli.printable import many


@bench_app.command("compare")
def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="What a bench printed with --json.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="The same bench, later or elsewhere.")],
    guard: Guards = None,
    json: Json = False,
) -> int:
    """Two reports of one bench side by side.

    Every figure of A beside that of B, the ratios of two modes among them, and what was not the same. Domains, bands
    and intervals within a cell are left out. A guard with x bounds B / A, one without bounds B: 'tok_s>=0.98x',
    'errors<=0'. It is not met where B lacks the figure.
    """
    from dataclasses import asdict

    from tide_cli.bench.compare import compare, judge_differences, read_report, unfinished
    from tide_cli.bench.conditions import changed_conditions
    from tide_cli.bench.guards import parse_guard

    guards = [parse_guard(text, "'tok_s>=0.98x', 'code:tide_al>=1.2' or 'errors<=0'") for text in guard or ()]
    reports = [read_report(path) for path in (before, after)]
    differences = compare(*reports)
    if all(one.after is None for one in differences):
        raise UsageError(f"{before} and {after} have no figure in common")
    findings = judge_differences(guards, differences)
    changed = changed_conditions(*reports)
    if changed:
        complain(["not the same conditions:", *changed])
    for path, report in zip((before, after), reports, strict=True):
        if unfinished(report):
            complain([f"the measurement of {path} was not over yet"])
    lacking = sum(one.after is None for one in differences)
    if lacking:
        complain([f"{after} lacks {many(lacking, 'figure')} that {before} has"])
    if json:
        print_json(
            {
                "changed": changed,
                "figures": [asdict(one) | {"ratio": one.ratio} for one in differences],
                "guards": [asdict(finding) | {"words": finding.words()} for finding in findings],
            }
        )
    else:
        rows = [
            (one.where or "-", one.figure, f"{one.before:,.4g}", _given(one.after, ",.4g"), _given(one.ratio, ".3f"))
            for one in differences
        ]
        print_table(("where", "figure", "A", "B", "B / A"), rows)
    return verdict([asdict(finding) | {"words": finding.words()} for finding in findings])


def _given(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
