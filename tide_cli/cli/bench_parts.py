"""What `tide bench capture`, `swap`, `train`, `profile` and `spool` have in common: options, and the way of a
measurement from its guards to the exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.load_options import verdict
from tide_cli.cli.output import complain, print_json, print_table
from tide_cli.cli.progress import narrated
from tide_cli.cli.where import path_option
from tide_cli.errors import ExitCode

if TYPE_CHECKING:
    from tide_cli.bench.guards import Guard
    from tide_cli.bench.part_guards import Known

Workload = Annotated[
    Path | None,
    path_option("--workload", "Prompts: JSONL with OpenAI `messages`, or a folder.", "PATH", "generated"),
]
Rounds = Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Rounds; each takes every side once.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=8, help="Tokens of an answer at most.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the choice of prompts.")]
PartGuards = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="GUARD",
        help="A bound on a figure; exit code 1 where it is not met. May be given more than once.",
        show_default="none",
    ),
]


@dataclass(frozen=True)
class Part:
    """One part's measurement. name: its command; guards: bounds on its figures; known: those that it will have."""

    name: str
    guards: list[Guard]
    known: Known
    html: Path | None
    json: bool

    @classmethod
    def asked(cls, name: str, guard: list[str] | None, html: Path | None, json: bool, **known: Any) -> Part:
        """known: see `known_figures`. UsageError for a guard that nothing can answer, or a page that cannot be."""
        from tide_cli.bench.page import check_page
        from tide_cli.bench.part_guards import SUCH_AS, known_figures, part_guards

        figures = known_figures(name, **known)
        guards = part_guards(guard or (), figures, SUCH_AS[name])
        if html is not None:
            check_page(html)
        return cls(name, guards, figures, html, json)

    def measure(
        self,
        run: Callable[[Any], dict[str, Any]],
        show: Callable[[Mapping[str, Any]], None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> int:
        """Print what `run` finds, as JSON with what it was taken under or in tables; the exit code.

        show: prints the tables, None: as plain text; options: what was asked for, for the report.
        """
        from dataclasses import asdict

        from tide_cli.bench.part_guards import failures, judge_part
        from tide_cli.bench.report import busy_warning, make_report, take_environment

        environment = take_environment()
        try:
            with narrated(busy_warning(environment)) as progress:
                found = run(progress)
        except KeyboardInterrupt:
            complain(["interrupted: nothing is left behind"])
            raise
        judged = judge_part(self.guards, self.name, found, self.known)
        findings = [asdict(one) | {"words": one.words()} for one in judged]
        failed = failures(self.name, found, self.guards)
        found |= {"guards": findings, "failures": failed} | ({"options": options} if options else {})
        report = make_report(environment, **{self.name: found})
        if self.json:
            print_json(report)
        else:
            (show or self._show)(found)
        if self.html is not None:
            self._write(self.html, report)
        for sentence in failed:
            complain([sentence])
        code = verdict(findings)
        return int(ExitCode.FAILED) if failed else code

    def _show(self, found: Mapping[str, Any]) -> None:
        from tide_cli.bench.part_tables import part_reading, part_table

        for header, rows in part_table(self.name, found):
            print_table(header, rows)
            print()
        for sentence in part_reading(self.name, found):
            print(sentence)

    def _write(self, html: Path, report: Mapping[str, Any]) -> None:
        from tide_cli.bench.page import write_page
        from tide_cli.bench.part_page import part_page

        write_page(html, part_page(self.name, report), None)
        complain([f"the report is {html}"])
