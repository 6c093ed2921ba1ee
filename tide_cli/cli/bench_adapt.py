"""`tide bench adapt`: what adaptation brings when the traffic changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.bench_parts import PartGuards
from tide_cli.cli.load_options import MOST_REQUESTS, Page, numbers, verdict
from tide_cli.cli.output import complain, print_json
from tide_cli.cli.progress import narrated
from tide_cli.cli.setting_options import Draft, Dtype, Target
from tide_cli.cli.where import Json, path_option, settings_for
from tide_cli.errors import ExitCode, UsageError
from tide_cli.printable import many


@bench_app.command("adapt")
def adapt(
    workload: Annotated[Path, path_option("--workload", "Folder with DOMAIN.jsonl files, OpenAI `messages`.")],
    domains: Annotated[
        str | None, typer.Option("--domains", help="Domains whose traffic comes one after another, e.g. code,sql.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order", help="Domains in the order of the traffic, some of them again, e.g. code,sql,code,sql."
        ),
    ] = None,
    general: Annotated[
        str | None,
        typer.Option("--general", help="Domains that the static draft is trained on.", show_default="no training"),
    ] = None,
    mixed: Annotated[
        int, typer.Option("--mixed", min=0, max=MOST_REQUESTS, help="Requests of all domains mixed, at the end.")
    ] = 0,
    general_requests: Annotated[
        int, typer.Option("--general-requests", min=1, max=MOST_REQUESTS, help="Requests of the general traffic.")
    ] = 96,
    requests: Annotated[
        int, typer.Option("--requests", min=1, max=MOST_REQUESTS, help="Requests of each phase, for each arm.")
    ] = 64,
    piece: Annotated[int, typer.Option("--piece", min=1, help="Requests that an arm answers in its turn.")] = 8,
    held_out: Annotated[int, typer.Option("--held-out", min=1, help="Prompts of each domain for measuring.")] = 8,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Rounds of measuring the final drafts.")] = 3,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=2, help="Tokens of an answer at most.")] = 96,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at a time; of several, e.g. 1,4, the pieces take turns.")
    ] = "4",
    trace: Annotated[
        Path | None,
        path_option("--trace", "Arrivals of the traffic: timestamp_s, output_tokens; instead of --concurrency.", "CSV"),
    ] = None,
    speed: Annotated[float, typer.Option("--speed", help="How many times as fast as the trace.")] = 1.0,
    measure_at: Annotated[
        str | None,
        typer.Option("--measure-at", help="Requests at a time in the end, e.g. 4,1.", show_default="--concurrency"),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain/--no-plain", help="Measure decoding without a draft, too.")] = True,
    without_pool: Annotated[
        bool, typer.Option("--without-pool", help="A further arm that learns but never tries kept drafts.")
    ] = False,
    with_policy: Annotated[
        bool,
        typer.Option("--with-policy", help="A further arm that learns and serves with --speculation auto."),
    ] = False,
    target: Target = None,
    draft: Draft = None,
    dtype: Dtype = None,
    speculation: Annotated[
        str | None,
        typer.Option(
            "--speculation",
            help="on, auto or a number of draft steps, as in `tide up`.",
            show_default="that of the settings, else on",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="Of the prompts' order and of the training.",
            show_default="that of the settings",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        path_option(
            "--folder",
            "Where everything is kept; an interrupted run goes on from there.",
            show_default="temporary folder",
        ),
    ] = None,
    guard: PartGuards = None,
    html: Page = None,
    json: Json = False,
) -> int:
    """Shifting traffic: a draft that learns, one that does not.

    A first draft is trained on --general; then both arms get the same requests, in turns. In the end both drafts answer
    prompts that were never traffic. Settings of the arms come from TIDE_* and the settings file as for `tide up`. With
    the embedded target on two cores count on half an hour for four domains. Exit code 1 where a --guard such as
    'ratio>=1.1' is not met.
    """
    from dataclasses import asdict

    from tide_cli.bench.adapt import run_adapt
    from tide_cli.bench.adapt_guards import ADAPT_GUARDS, check_adapt_guards, failures, judge_adapt
    from tide_cli.bench.adapt_options import AdaptOptions
    from tide_cli.bench.engines import with_defaults
    from tide_cli.bench.guards import parse_guard
    from tide_cli.bench.page import check_page
    from tide_cli.bench.report import busy_warning, take_environment
    from tide_cli.bench.requests import SLOWEST

    guards = [parse_guard(text, ADAPT_GUARDS) for text in guard or ()]
    if html is not None:
        check_page(html)
    named, ordered = _names("--domains", domains), _names("--order", order)
    if named and ordered and set(named) != set(ordered):
        raise UsageError("--domains and --order name different domains", remedy="--order alone is enough")
    names = ordered or named
    if not names:
        raise UsageError("no domain is named", remedy="name them with --domains, for example --domains code,sql")
    loads, ends = (
        tuple(map(int, numbers(text, flag, whole=True)))
        for text, flag in ((concurrency, "--concurrency"), (measure_at or concurrency, "--measure-at"))
    )
    if trace is not None and len(loads) > 1:
        raise UsageError(
            "--trace and several concurrencies exclude each other",
            remedy="name one, for what is not sent when the trace says, and others with --measure-at",
        )
    if speed < SLOWEST:
        raise UsageError(f"--speed {speed} is not accepted", remedy=f"give a number from {SLOWEST} on")
    if speed != 1 and trace is None:
        raise UsageError("--speed has no effect", why="it makes a --trace faster")
    fewest = -(-min(requests, mixed or requests) // piece)
    if fewest < len(loads):
        raise UsageError(
            f"--concurrency {concurrency}: not every phase has a piece for each",
            why=f"one has {many(fewest, 'piece')}",
            remedy="choose a smaller --piece, or more --requests",
        )
    chosen = {"target": target, "draft": draft, "dtype": dtype, "speculation": speculation, "seed": seed}
    in_force = settings_for(None, None, **with_defaults({"speculation": "on"}, chosen))
    if in_force.speculation == "off":
        raise UsageError("speculation off leaves nothing to adapt", remedy="pass --speculation on")
    if with_policy and in_force.speculation == "auto":
        raise UsageError("--with-policy adds nothing", why="with speculation auto every arm goes by the policy")
    # also where no flag names them: what an interrupted run goes on with
    settings = {name: getattr(in_force, name) for name in ("target", "dtype", "speculation", "seed")}
    options = AdaptOptions(
        workload=workload.absolute(),
        order=names,
        general=_names("--general", general),
        mixed=mixed,
        general_requests=general_requests,
        requests=requests,
        piece=piece,
        held_out=held_out,
        rounds=rounds,
        max_tokens=max_tokens,
        concurrency=loads,
        trace=None if trace is None else trace.absolute(),
        speed=speed,
        measure_at=ends,
        plain=plain,
        without_pool=without_pool,
        with_policy=with_policy,
        seed=in_force.seed,
        settings=tuple((settings | ({"draft": draft} if draft else {})).items()),
    )
    check_adapt_guards(guards, options)
    environment = take_environment()
    try:
        with narrated(busy_warning(environment)) as progress:
            report = run_adapt(options, folder, environment, progress)
    except KeyboardInterrupt:
        again = f"the same command goes on from {folder}" if folder else "nothing is left behind"
        complain([f"interrupted: {again}"])
        raise
    findings = [asdict(one) | {"words": one.words()} for one in judge_adapt(guards, report["adapt"])]
    failed = failures(report["adapt"])
    report["adapt"] |= {"guards": findings, "failures": failed}
    _show(report, json)
    if html is not None:
        from tide_cli.bench.adapt_page import adapt_page
        from tide_cli.bench.page import write_page

        again = f"everything is kept: the same command with another --html goes on from {folder}" if folder else None
        write_page(html, adapt_page(report), again)
    for sentence in failed:
        complain([sentence])
    code = verdict(findings)
    return int(ExitCode.FAILED) if failed else code


def _show(report: dict[str, Any], json: bool) -> None:
    from rich.console import Console

    from tide_cli.bench.adapt_table import as_tables

    if json:
        print_json(report)
    else:
        Console().print(as_tables(report["adapt"]))


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    """'code,sql' -> ('code', 'sql'). Raises UsageError for an empty name or one that is a path."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if any(not name or "/" in name or name.startswith(".") for name in names):
        raise UsageError(f"{flag}: {text!r} names no domains", remedy="write for example code,sql")
    return names
