"""`tide up`: the appliance in the foreground with the dashboard, or detached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import complain
from tide_cli.cli.setting_options import (
    CacheDir,
    Capture,
    CaptureSampleRate,
    ContextLength,
    CycleSeconds,
    CycleTokens,
    Draft,
    Dtype,
    Gpus,
    Host,
    MaxRunningRequests,
    NoSpeculation,
    Port,
    RetentionHours,
    Seed,
    ServeCores,
    ServeGpus,
    Speculation,
    SpoolSize,
    Target,
    Tp,
    TrainCores,
    TrainGpus,
    Training,
    speculation_mode,
)
from tide_cli.cli.where import Config, StateDir, settings_for
from tide_cli.errors import UsageError

if TYPE_CHECKING:
    from tide_cli.settings import Settings
    from tide_cli.supervisor.specs import Workshop


# kinds of events that a detached start tells of
_PROGRESS = {"plan", "leftovers", "draft_ignored", "spool_size_ignored", "captures", "started", "ready"}


_NO_SETTINGS = {"state_dir", "config", "detach", "wait", "no_speculation"}


@app.command()
def up(
    sglang_arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="SGLANG_ARGUMENT", help="Behind `--`: handed on to SGLang.", show_default=False),
    ] = None,
    target: Target = None,
    draft: Draft = None,
    state_dir: StateDir = None,
    cache_dir: CacheDir = None,
    host: Host = None,
    port: Port = None,
    dtype: Dtype = None,
    context_length: ContextLength = None,
    max_running_requests: MaxRunningRequests = None,
    gpus: Gpus = None,
    serve_gpus: ServeGpus = None,
    train_gpus: TrainGpus = None,
    tp: Tp = None,
    serve_cores: ServeCores = None,
    train_cores: TrainCores = None,
    spool_size: SpoolSize = None,
    cycle_tokens: CycleTokens = None,
    cycle_seconds: CycleSeconds = None,
    seed: Seed = None,
    capture: Capture = None,
    capture_sample_rate: CaptureSampleRate = None,
    retention_hours: RetentionHours = None,
    training: Training = None,
    speculation: Speculation = None,
    no_speculation: NoSpeculation = None,
    config: Config = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --detach: return when the engine answers.")] = False,
) -> int:
    """Serve a model and learn from its traffic.

    Every better draft is put into service. Everything else that can be set stands in the settings file or the
    environment: `tide config`.
    """
    speculation = speculation_mode(speculation, no_speculation)
    if wait and not detach:
        raise UsageError("--wait goes with --detach", remedy="`tide up` without them stays in the foreground")
    flags = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
    settings = settings_for(state_dir, config, **flags | {"sglang_arguments": sglang_arguments or None})
    if detach:
        return _detached(settings, wait)
    from tide_cli.supervisor.appliance import check_settings

    return foreground(check_settings(settings))


def foreground(workshop: Workshop) -> int:
    """The dashboard where there is a terminal, else a line for each event."""
    from contextlib import suppress

    from tide_cli.dashboard.foreground import Foreground, can_draw
    from tide_cli.supervisor.appliance import (
        outcome_error,
        read_outcome,
        run_with_signals,
        running_appliance,
    )
    from tide_cli.supervisor.journal import event_line

    settings, screen = workshop.settings, None
    killed: list[str] = []  # what the dashboard has shown last, and takes away with it

    def on_event(event: dict[str, Any]) -> None:
        if screen and event["kind"] == "killed":
            killed.append(event["text"])
        if (screen and screen.shown) or event["kind"] == "fatal":  # that reason is the error this command ends with
            return
        with suppress(OSError):  # a full disk or a reader that has gone costs the words, not the serving
            print(event_line(event), flush=True)
            if event["kind"] == "ready":
                print(f"serving at {supervisor.status()['address']}", flush=True)

    def on_close(words: str) -> None:
        back = "`tide top` opens it again, Ctrl-C ends the appliance"
        with suppress(OSError):  # the terminal may be gone as well
            complain([f"{words}; the appliance goes on here at {supervisor.status()['address']}", back])

    with running_appliance(workshop, on_event) as supervisor:
        if can_draw():
            screen = Foreground(settings.paths, on_close)
        try:
            code = run_with_signals(supervisor)
        finally:
            if screen:
                screen.close()
    outcome = read_outcome(settings.paths)
    if code and outcome:
        raise outcome_error(outcome)
    if screen:
        complain([*killed, "the appliance has ended"])
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
    complain([f"detached, pid {status['pid']}; `tide ps` shows it, `tide down` ends it"])
    if status["state"] != "READY":
        complain(["it answers when `tide ps` says READY, usually after about a minute"])
    print(status["address"])
    return 0
