"""`tide simulate`: an appliance of full size in simulated time. Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json
from tide_cli.cli.plan import MachineFile, another_machine_named, read_machine, this_machine
from tide_cli.cli.setting_options import (
    CaptureSampleRate,
    ContextLength,
    CycleSeconds,
    CycleTokens,
    Gpus,
    MaxRunningRequests,
    Seed,
    ServeCores,
    ServeGpus,
    Speculation,
    SpoolSize,
    Target,
    Tp,
    TrainCores,
    TrainGpus,
)
from tide_cli.cli.where import Config, Json, StateDir, path_option, settings_for
from tide_cli.errors import TideError, UsageError
from tide_cli.setting_values import parse_size

_MOST_WRITTEN = 4 * 2**30  # bytes of a ring that is really made
_SETTINGS = (
    *("target", "context_length", "max_running_requests", "gpus", "serve_gpus", "train_gpus", "tp", "serve_cores"),
    *("train_cores", "spool_size", "cycle_tokens", "cycle_seconds", "capture_sample_rate", "seed", "speculation"),
)


def _option(name: str, text: str, metavar: str | None = None, **how: Any) -> Any:
    return typer.Option(name, help=text, metavar=metavar, **how)


@app.command()
def simulate(
    inventory: MachineFile = None,
    target: Target = None,
    workload: Annotated[
        Path | None, path_option("--workload", "Load as in a trace: timestamp_s, input_tokens, output_tokens.", "CSV")
    ] = None,
    rate: Annotated[
        float | None, _option("--rate", "Or requests a second, at random.", max=1000, show_default="none")
    ] = None,
    concurrency: Annotated[
        int | None,
        _option(
            "--concurrency", "Or so many at a time, always.", min=1, max=10**5, show_default="max_running_requests"
        ),
    ] = None,
    speed: Annotated[float, _option("--speed", "How many times as fast as the trace.")] = 1.0,
    input_tokens: Annotated[
        int, _option("--input-tokens", "Mean length of a prompt; a trace has its own.", min=1, max=10**7)
    ] = 1000,
    output_tokens: Annotated[
        int, _option("--output-tokens", "Mean length of an answer, likewise.", min=2, max=10**7)
    ] = 300,
    duration: Annotated[float, _option("--duration", "Simulated seconds, at most.", max=10**7)] = 1800.0,
    domains: Annotated[int, _option("--domains", "Kinds of traffic, one after another.", min=1)] = 1,
    shift_every: Annotated[
        float | None, _option("--shift-every", "Seconds after which the next kind comes.", show_default="never")
    ] = None,
    first_length: Annotated[
        float, _option("--first-length", "Acceptance length of the first draft on this traffic.")
    ] = 2.0,
    reachable_length: Annotated[
        float, _option("--reachable-length", "Acceptance length that training comes to in the end.")
    ] = 2.4,
    learn_tokens: Annotated[
        float, _option("--learn-tokens", "Distinct tokens in training that bring 63 % of that gain.")
    ] = 45_000,
    profile: Annotated[
        Path | None, path_option("--profile", "Round times that `tide profile` measured, not a formula's.", "FILE")
    ] = None,
    bandwidth: Annotated[
        float | None, _option("--bandwidth", "GB/s of a GPU's memory, not the data sheet's.", show_default="none")
    ] = None,
    tflops: Annotated[
        float | None, _option("--tflops", "Dense bfloat16 TFLOP/s of a GPU, likewise.", show_default="none")
    ] = None,
    trainer_share: Annotated[
        float, _option("--trainer-share", "Part of a serving GPU that a sharing trainer takes while it trains.")
    ] = 0.5,
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
    capture_sample_rate: CaptureSampleRate = None,
    speculation: Speculation = None,
    seed: Seed = None,
    write_spool: Annotated[
        str | None,
        _option("--write-spool", "Write a spool of this size, at most 4 GiB, to a temporary folder.", "SIZE"),
    ] = None,
    events: Annotated[bool, _option("--events", "Every decision of the planned split, too.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """What adaptation would bring on a machine.

    When it pays, how large the spool must be, which GPUs should train; nothing is started. Policies, planner and the
    spool's arithmetic are those of an appliance; the GPUs, the traffic and how a draft learns are models.
    docs/simulation.md says what they assume. Other settings count too, from the environment or --config.
    """
    given = locals()
    from tide_cli.cli.simulate_view import simulated_as_dict, simulated_text
    from tide_cli.simulation.compare import answer
    from tide_cli.simulation.options import Options, question
    from tide_cli.supervisor.values import check_values

    if write_spool:
        try:
            parse_size(write_spool)
        except ValueError as error:
            raise UsageError(f"--write-spool {write_spool}: {error}") from None
    chosen = {name: given[name] for name in _SETTINGS} | ({"spool_size": write_spool} if write_spool else {})
    settings = settings_for(state_dir, config, **chosen)
    if write_spool and (settings.spool_size or 0) > _MOST_WRITTEN:
        raise UsageError(f"--write-spool {write_spool} is too large", why="4 GiB show as much as more would")
    wanted = check_values(settings)
    options = Options(
        workload=workload,
        rate=rate,
        concurrency=concurrency,
        speed=speed,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        duration=duration,
        domains=domains,
        shift=shift_every,
        first_length=first_length,
        reachable_length=reachable_length,
        learn_tokens=learn_tokens,
        profile=profile,
        gigabytes=bandwidth,
        teraflops=tflops,
        share=trainer_share,
    )
    machine = read_machine(inventory) if inventory else this_machine(settings.paths)
    asked = question(settings, wanted, machine, options)
    with another_machine_named("simulate", inventory, settings.target):
        if write_spool:
            import signal
            import tempfile

            signal.signal(signal.SIGTERM, signal.default_int_handler)  # the folder goes then too
            with tempfile.TemporaryDirectory(prefix="tide-simulate-") as folder:
                answers = answer(asked, Path(folder) / "spool")
        else:
            answers = answer(asked)
    if json:
        print_json(simulated_as_dict(asked, answers))
    else:
        print(simulated_text(asked, answers, events=events))
    if answers.written is not None and not answers.written.agrees:
        raise TideError("the spool's files differ from what was counted", remedy="this is a fault in TIDE")
