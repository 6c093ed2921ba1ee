"""`tide bench matrix`: what speculation and adaptation bring on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.load_options import (
    MOST_REQUESTS,
    Domains,
    Guards,
    MaxTokens,
    Page,
    Seed,
    Temperature,
    Timeout,
    chosen_loads,
    names,
    verdict,
)
from tide_cli.cli.output import complain, print_json
from tide_cli.cli.progress import progress
from tide_cli.cli.where import Config, Json, StateDir, path_option, settings_for
from tide_cli.errors import ExitCode, UsageError
from tide_cli.printable import many

if TYPE_CHECKING:
    from tide_cli.bench.guards import Guard
    from tide_cli.bench.matrix import MatrixPlan
    from tide_cli.bench.requests import Request
    from tide_cli.bench.results import Results


_WITH_RESUME = ("resume", "guard", "html", "config", "json")  # what may be given anew when a measurement goes on


@bench_app.command("matrix")
def matrix(
    context: typer.Context,
    workload: Annotated[
        Path | None,
        path_option("--workload", "Requests: JSONL with OpenAI `messages`, or a folder of DOMAIN.jsonl.", "PATH"),
    ] = None,
    domains: Domains = None,
    modes: Annotated[
        str | None,
        typer.Option(
            "--modes", metavar="A,B", help="Among plain, static, adapted, policy.", show_default="what has a draft"
        ),
    ] = None,
    static: Annotated[
        str | None,
        typer.Option("--static", metavar="DRAFT", help="Version, folder or hub id.", show_default="the first one"),
    ] = None,
    adapted: Annotated[
        str | None,
        typer.Option("--adapted", metavar="DRAFT", help="Version, folder or hub id.", show_default="the served one"),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="As for `tide up`.", show_default="that of the settings")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", metavar="N,M", help="Requests at a time.", show_default="1,4")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="R,S", help="Requests a second, at random, instead.", show_default="none"),
    ] = None,
    requests: Annotated[int, typer.Option("--requests", min=2, max=MOST_REQUESTS, help="Requests in each pass.")] = 16,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Passes of each mode under each load.")] = 3,
    max_tokens: MaxTokens = 64,
    temperature: Temperature = 0.0,
    timeout: Timeout = 300.0,
    seed: Seed = 0,
    guard: Guards = None,
    html: Page = None,
    results: Annotated[
        Path | None,
        path_option("--results", "Where finished passes are kept.", "FILE", "until the end, in the cache"),
    ] = None,
    resume: Annotated[Path | None, path_option("--resume", "Go on with kept passes.", "FILE", "none")] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Plain, static, adapted and policy on the same requests.

    Plain decoding, the static draft, the adapted draft and the policy, in turns. The drafts are those of the appliance
    on --state-dir unless --static and --adapted say otherwise; it is left alone, and must not serve meanwhile on the
    same devices. Engines are started in temporary folders and ended in any case.
    """
    from tide_cli.bench.conditions import changed_machine
    from tide_cli.bench.guards import check_guards, parse_guard
    from tide_cli.bench.matrix_figures import COMPARED, GUARDED
    from tide_cli.bench.matrix_kept import resume_matrix
    from tide_cli.bench.matrix_plan import make_plan, requests_of
    from tide_cli.bench.matrix_table import failures, unanswered
    from tide_cli.bench.page import check_page
    from tide_cli.bench.report import busy_warning, take_environment
    from tide_cli.bench.results import Results
    from tide_cli.file_locks import is_locked

    guards = [parse_guard(text) for text in guard or ()]
    if html is not None:
        check_page(html)
    if resume is None:
        if workload is None:
            raise UsageError("--workload is missing", remedy="name a JSONL file or a folder, or --resume a measurement")
        settings = settings_for(state_dir, config, target=target)
        plan = make_plan(
            settings,
            workload=workload,
            domains=names(domains, "--domains"),
            modes=names(modes, "--modes"),
            static=static,
            adapted=adapted,
            loads=chosen_loads(concurrency, rate),
            rounds=rounds,
            requests=requests,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            timeout=timeout,
            config=config,
        )
        check_guards(guards, plan.modes, GUARDED, COMPARED)
        environment = take_environment()
        name = f"matrix-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.jsonl"
        path = results or settings.paths.cache / "bench" / name
        head = {"plan": plan.to_json(), "environment": environment}
        kept = Results.begin(path, "matrix", head if results else head | {"temporary": str(path)})
        warnings = [busy] if (busy := busy_warning(environment)) else []
        if is_locked(settings.paths.lock):
            warnings = [f"an appliance runs on {settings.paths.state}: what it does meanwhile is measured, too"]
        if modes is None and "adapted" not in plan.modes:
            warnings.append(f"{settings.paths.drafts} holds no adapted draft: {' and '.join(plan.modes)} are measured")
    else:
        _check_alone(context)
        kept, plan = resume_matrix(resume)
        changed = changed_machine(kept.head["environment"], take_environment())
        warnings = [f"begun under other conditions: {'; '.join(changed)}"] if changed else []
        check_guards(guards, plan.modes, GUARDED, COMPARED)
    with kept:
        _measure(plan, requests_of(plan), kept, config, warnings, temporary=results is None and resume is None)
        report = _report(plan, kept, guards)
        _show(report, kept, json)
        if html is not None:
            _write(html, report, kept)
        if _is_temporary(kept):
            kept.path.unlink()
    for sentence in failures(report["matrix"]):
        complain([sentence])
    code = verdict(report["matrix"]["guards"])
    return int(ExitCode.FAILED) if unanswered(report["matrix"]) else code


def _is_temporary(kept: Results) -> bool:
    """Whether a command made the file for itself, and nobody has taken it elsewhere since."""
    return kept.head.get("temporary") == str(kept.path.absolute())


def _check_alone(context: typer.Context) -> None:
    """Refuses every option that would say once more, or otherwise, what a resumed measurement goes on with."""
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if param.name not in _WITH_RESUME and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{param.opts[0]} has no effect with --resume", why="it goes on with what was begun")


def _measure(
    plan: MatrixPlan,
    requests: Sequence[Request],
    kept: Results,
    config: Path | None,
    warnings: Sequence[str],
    *,
    temporary: bool,
) -> None:
    """warnings: said before the first engine is started. temporary: whether this command made the file of results for
    itself; another one stays even when it is empty."""
    from tide_cli.bench.matrix_run import run_matrix

    unsaid = [*warnings]

    def say(line: str) -> None:
        for told in (*unsaid, line):
            complain([told])
        unsaid.clear()

    try:
        with progress("measuring") as tick:
            run_matrix(plan, requests, kept, config, say, tick)
    except BaseException as error:
        if not kept.parts and temporary:
            kept.path.unlink()
        else:
            passes = plan.rounds * len(plan.modes) * len(plan.loads)
            stopped = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
            complain(
                [
                    f"{stopped}: no engine is left behind, and {len(kept.parts)} of {many(passes, 'pass')} are kept",
                    f"`tide bench matrix --resume {kept.path}` goes on",
                ]
            )
        raise


def _report(plan: MatrixPlan, kept: Results, guards: Sequence[Guard]) -> dict[str, Any]:
    """{environment, matrix: {plan, domains, missing, cells, ratios, guards}}."""
    from dataclasses import asdict

    from tide_cli.bench.guards import judge
    from tide_cli.bench.matrix import Pass
    from tide_cli.bench.matrix_figures import figures
    from tide_cli.bench.report import make_report

    passes = [Pass.from_json(part) for part in kept.parts]
    found = figures(plan, passes)
    findings = judge(guards, found["cells"], found["ratios"])
    domains = sorted({answer.request.domain or "-" for one in passes for answer in one.answers})
    return make_report(
        kept.head["environment"],
        matrix={
            "plan": plan.to_json(),
            "domains": domains,
            **found,
            "guards": [asdict(finding) | {"words": finding.words()} for finding in findings],
        },
    )


def _write(html: Path, report: dict[str, Any], kept: Results) -> None:
    from tide_cli.bench.matrix_page import matrix_page
    from tide_cli.bench.page import write_page

    again = f"every pass is kept: `tide bench matrix --resume {kept.path} --html FILE` writes it without measuring"
    write_page(html, matrix_page(report), again)
    complain([f"the report is {html}"])


def _show(report: dict[str, Any], kept: Results, json: bool) -> None:
    from rich.console import Console

    from tide_cli.bench.matrix_table import as_tables, reading

    try:
        if json:
            print_json(report)
        else:
            console = Console()
            for table in as_tables(report["matrix"]):
                console.print(table)
            for sentence in reading(report["matrix"]):
                console.print(sentence, highlight=False, soft_wrap=True)
        sys.stdout.flush()
    except (OSError, SystemExit):  # the latter is how rich says that nobody reads
        complain([f"every pass is kept: `tide bench matrix --resume {kept.path}` shows them without measuring"])
        raise
