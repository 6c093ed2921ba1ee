"""`tide up`: the appliance in the foreground with a live status, or detached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import complain
from tide_cli.cli.where import Config, StateDir, settings_for
from tide_cli.errors import UsageError

if TYPE_CHECKING:
    from tide_cli.settings import Settings


# kinds of events that a detached start tells of
_PROGRESS = {"plan", "leftovers", "draft_ignored", "captures", "started", "ready"}


_NO_SETTINGS = {"state_dir", "config", "detach", "wait", "no_speculation"}


def _flag(name: str, text: str) -> Any:
    return typer.Option(name, help=text, show_default=False)


@app.command()
def up(
    sglang_arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="SGLANG_ARGUMENT", help="Behind `--`: handed on to SGLang.", show_default=False),
    ] = None,
    target: Annotated[str | None, _flag("--target", "Known target, checkpoint folder or hub id.")] = None,
    draft: Annotated[str | None, _flag("--draft", "EAGLE3 draft to start with: folder or hub id.")] = None,
    state_dir: StateDir = None,
    cache_dir: Annotated[Path | None, _flag("--cache-dir", "Folder of converted targets.")] = None,
    host: Annotated[str | None, _flag("--host", "Address to listen on.")] = None,
    port: Annotated[int | None, _flag("--port", "Port to listen on.")] = None,
    dtype: Annotated[str | None, _flag("--dtype", "auto, float32 or bfloat16.")] = None,
    context_length: Annotated[int | None, _flag("--context-length", "Longest sequence, in tokens.")] = None,
    max_running_requests: Annotated[
        int | None, _flag("--max-running-requests", "Requests decoded together at most.")
    ] = None,
    gpus: Annotated[str | None, _flag("--gpus", "GPUs that may be used, e.g. 0-3, or cpu.")] = None,
    serve_gpus: Annotated[str | None, _flag("--serve-gpus", "GPUs of the engine, e.g. 0,1.")] = None,
    train_gpus: Annotated[str | None, _flag("--train-gpus", "GPU of the trainer, or cpu.")] = None,
    tp: Annotated[int | None, _flag("--tp", "GPUs one copy of the target is spread over.")] = None,
    serve_cores: Annotated[str | None, _flag("--serve-cores", "CPU cores of the engine, e.g. 0-3.")] = None,
    train_cores: Annotated[str | None, _flag("--train-cores", "CPU cores of the trainer.")] = None,
    spool_size: Annotated[str | None, _flag("--spool-size", "Size of the spool, e.g. 2GiB.")] = None,
    cycle_tokens: Annotated[int | None, _flag("--cycle-tokens", "New tokens that start a training cycle.")] = None,
    cycle_seconds: Annotated[float | None, _flag("--cycle-seconds", "Training time of one cycle.")] = None,
    seed: Annotated[int | None, _flag("--seed", "Seed of the first draft, the batches and the gate.")] = None,
    capture: Annotated[
        bool | None, typer.Option("--capture/--no-capture", help="Store hidden states.", show_default=False)
    ] = None,
    capture_sample_rate: Annotated[
        float | None, _flag("--capture-sample-rate", "Share of the requests that is stored, 0 to 1.")
    ] = None,
    retention_hours: Annotated[
        float | None, _flag("--retention-hours", "Erase samples older than this; else they stay until overwritten.")
    ] = None,
    training: Annotated[
        bool | None, typer.Option("--training/--no-training", help="Train the draft.", show_default=False)
    ] = None,
    speculation: Annotated[
        str | None, _flag("--speculation", "auto, on, off, or a fixed number of draft steps.")
    ] = None,
    no_speculation: Annotated[
        bool | None, typer.Option("--no-speculation", help="The same as --speculation off.", show_default=False)
    ] = None,
    config: Config = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --detach: return when the engine answers.")] = False,
) -> int:
    """Serve a model, learn from its traffic, and put every better draft into service.

    Everything else that can be set stands in the settings file or the environment: `tide config`.
    """
    speculation = speculation_mode(speculation, no_speculation)
    if wait and not detach:
        raise UsageError("--wait goes with --detach", remedy="`tide up` without them stays in the foreground")
    flags = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
    settings = settings_for(state_dir, config, **flags | {"sglang_arguments": sglang_arguments or None})
    return _detached(settings, wait) if detach else _foreground(settings)


def speculation_mode(mode: str | None, off: bool | None) -> str | None:
    """--no-speculation is --speculation off. Raises UsageError where they contradict each other."""
    if off and mode not in (None, "off"):
        raise UsageError(f"--speculation {mode} and --no-speculation contradict each other")
    return "off" if off else mode


def _foreground(settings: Settings) -> int:
    from contextlib import nullcontext

    from tide_cli.supervisor.appliance import (
        check_settings,
        outcome_error,
        read_outcome,
        run_with_signals,
        running_appliance,
    )
    from tide_cli.supervisor.journal import event_line

    lively = sys.stdout.isatty()

    def on_event(event: dict[str, Any]) -> None:
        if lively or event["kind"] == "fatal":  # that reason is the error this command ends with
            return
        print(event_line(event), flush=True)
        if event["kind"] == "ready":
            print(f"serving at {supervisor.status()['address']}", flush=True)

    with running_appliance(check_settings(settings), on_event) as supervisor:
        if lively:
            from rich.console import Console

            from tide_cli.dashboard.live import live_status

            view = live_status(Console(), supervisor.status)
        else:
            view = nullcontext()
        with view:
            code = run_with_signals(supervisor)
    outcome = read_outcome(settings.paths)
    if code and outcome:
        raise outcome_error(outcome)
    return code


def _detached(settings: Settings, wait: bool) -> int:
    from tide_cli.supervisor.detach import start_detached, wait_for

    told = 0

    def enough(status: dict[str, Any]) -> bool:
        nonlocal told
        for event in status["events"]:
            if event["id"] > told and event["time"] >= status["started"]:
                told = event["id"]
                if event["kind"] in _PROGRESS:
                    complain([event["text"]])
        return not wait or status["state"] == "READY"

    process = start_detached(settings)
    status = wait_for(settings, process, enough)
    which = _which(settings)
    complain([f"detached, pid {status['pid']}; `tide ps{which}` shows it, `tide down{which}` ends it"])
    if status["state"] != "READY":
        complain([f"it answers when `tide ps{which}` says READY, usually after about a minute"])
    print(status["address"])
    return 0


def _which(settings: Settings) -> str:
    """What the other commands need to find this appliance: nothing where they would look there anyway."""
    from tide_cli.cli.where import appliance_paths

    return "" if appliance_paths(None).state == settings.state_dir else f" --state-dir {settings.state_dir}"
