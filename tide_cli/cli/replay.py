"""`tide replay`: traffic for a running appliance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.load_options import Domains, Temperature, Timeout, names
from tide_cli.cli.output import complain, print_json, print_table, words_of
from tide_cli.cli.progress import progress
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import ExitCode, TideError, UsageError
from tide_cli.setting_values import MOST_RUNNING
from tide_cli.supervisor.control_client import ask

if TYPE_CHECKING:
    from tide_cli.bench.client import Answer
    from tide_cli.bench.replay import Arrival
    from tide_cli.bench.requests import Request

_MAX_TOKENS = 256
_SHOWN = (
    *("requests", "errors", "timeouts", "seconds", "output_tok_s", "requests_s", "ttft_p50_ms", "ttft_p95_ms"),
    *("itl_p50_ms", "itl_p95_ms", "itl_p99_ms", "e2e_p50_ms", "e2e_p95_ms", "acceptance_length"),
)


@app.command()
def replay(
    workload: Annotated[
        Path,
        typer.Argument(
            help="JSONL with OpenAI `messages`, sent as it stands, or a folder of DOMAIN.jsonl, mixed; prompts that "
            "are repeated count once."
        ),
    ],
    domains: Domains = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="CSV", help="Arrivals and lengths of answers: timestamp_s, output_tokens."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, max=MOST_RUNNING, help="Requests at a time.", show_default="4")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Requests a second, at random, instead.", show_default="none")
    ] = None,
    speed: Annotated[float, typer.Option("--speed", help="How many times as fast as the trace or the rate.")] = 1.0,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests", min=1, max=1_000_000, help="How many, over and over.", show_default="each prompt once"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            min=1,
            help="Longest answer, in tokens.",
            show_default=f"{_MAX_TOKENS}; with --trace as the row says",
        ),
    ] = None,
    temperature: Temperature = 0.0,
    timeout: Timeout = 600.0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Of the order of a folder's prompts, and of --rate.", show_default="0"),
    ] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Send a workload to the running appliance, as traffic.

    The domains of a folder come mixed, evenly while they last; a file's prompts in the order of its lines. With --trace
    a request arrives when a row says so, whatever has been answered, and its answer is at most as long as the row's;
    what is asked comes from the workload, so the lengths of the trace's prompts play no part. Exit code 1 where a
    request failed. Ctrl-C ends it and prints what has been answered.
    """
    from tide_cli.bench.replay import read_trace, schedule
    from tide_cli.bench.requests import read_requests

    _check(concurrency, rate, trace, speed)
    mixed = workload.is_dir()
    if seed is not None and not mixed and rate is None:
        raise UsageError(
            "--seed has no effect",
            why="a file's prompts come in its order",
            remedy="it draws the order of a folder's prompts, and the moments of --rate",
        )
    arrivals_of = None if trace is None else read_trace(trace)
    found = read_requests(
        workload,
        max_tokens=max_tokens or _longest(arrivals_of),
        temperature=temperature,
        domains=names(domains, "--domains"),
    )
    status = ask(appliance_paths(state_dir, config).socket, "GET", "/v1/status")
    if status["state"] not in ("READY", "DEGRADED"):
        raise TideError(f"the appliance is not ready ({status['state']})", remedy="`tide ps` says when it is")
    sent, arrivals = schedule(
        found, count=requests, trace=arrivals_of, rate=rate, speed=speed, seed=seed or 0, mixed=mixed
    )
    answers, interrupted = _send(status, sent, (concurrency or 4) if arrivals is None else None, arrivals, timeout)
    _show(answers, json)
    if interrupted:
        raise KeyboardInterrupt
    return int(ExitCode.FAILED if any(answer.error for answer in answers) else ExitCode.DONE)


def _longest(trace: Sequence[Arrival] | None) -> int:
    """What an answer may be where --max-tokens does not say it: a trace's rows are followed whole."""
    return _MAX_TOKENS if trace is None else max(1, *(row.output_tokens for row in trace))


def _check(concurrency: int | None, rate: float | None, trace: Path | None, speed: float) -> None:
    from tide_cli.bench.requests import SLOWEST

    chosen = {"--trace": trace, "--concurrency": concurrency, "--rate": rate}
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", remedy="choose one")
    for name, value in (("--rate", rate), ("--speed", speed)):
        if value is not None and value < SLOWEST:
            raise UsageError(f"{name} {value} is not accepted", remedy=f"give a number from {SLOWEST} on")
    if rate is not None and rate * speed < SLOWEST:
        raise UsageError(
            f"--rate {rate} at --speed {speed} is too slow", why=f"{SLOWEST} requests a second is the least"
        )
    if speed != 1 and trace is None and rate is None:
        raise UsageError("--speed has no effect", why="it makes a --trace or a --rate faster")


def _send(
    status: dict[str, Any],
    requests: Sequence[Request],
    concurrency: int | None,
    arrivals: list[float] | None,
    timeout: float,
) -> tuple[list[Answer], bool]:
    """The answers that came, and whether Ctrl-C cut the others off."""
    from tide_cli.bench.client import run, send_all

    answers: list[Answer] = []
    with progress("sending") as tick:

        def on_answer(answer: Answer) -> None:
            answers.append(answer)
            tick(len(answers), len(requests))

        try:
            run(
                send_all(
                    status["address"].removesuffix("/v1"),
                    status["target"],
                    requests,
                    concurrency=concurrency,
                    arrivals=arrivals,
                    on_answer=on_answer,
                    captured=True,
                    timeout=timeout,
                )
            )
        except KeyboardInterrupt:
            return answers, True
    return answers, False


def _show(answers: Sequence[Answer], json: bool) -> None:
    from tide_cli.bench.figures import pass_figures, summarise

    domains = sorted({answer.request.domain for answer in answers}, key=lambda name: name or "")
    figures = pass_figures(answers)
    for reason in sorted({answer.error for answer in answers if answer.error})[:3]:
        complain([f"a request failed: {reason}"])
    if json:
        by_domain = [
            {"domain": name} | summarise([answer for answer in answers if answer.request.domain == name])
            for name in domains
        ]
        print_json({"replay": figures | {"by_domain": by_domain}})
        return
    print_table(("figure", "value"), [(words_of(name), _rounded(figures[name])) for name in _SHOWN])


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
