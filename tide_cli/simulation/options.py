"""From what a user asks to a `Question`: his settings, his machine, the load and the assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tide_cli.bench.replay import read_trace
from tide_cli.engine.plugin.profile import Profile
from tide_cli.errors import UsageError, reason
from tide_cli.hardware.inventory import Inventory
from tide_cli.hardware.plan_settings import draft_shape, target_shape
from tide_cli.hardware.wishes import Wishes
from tide_cli.json_files import json_object
from tide_cli.regular_files import read_named
from tide_cli.settings import Settings
from tide_cli.simulation.acceptance import Learnable
from tide_cli.simulation.arrivals import Load
from tide_cli.simulation.compare import Question
from tide_cli.simulation.gpu_figures import GpuFigures
from tide_cli.simulation.machine import Measured
from tide_cli.simulation.splits import SHARE, Division
from tide_cli.targets import Target, known_targets, read_target_shape

# Effective tokens: what the acceptance lengths of three recorded cycles of the embedded target's first draft fit best
# (1.03 to 1.19, 1.24 and 1.29 after 38,000, 72,000 and 111,000).
LEARN_TOKENS = 45_000
# Tokens of other domains after which 1/e is left of a domain: training on new traffic alone took a draft of the
# embedded target from 0.53 to 0.24 accepted proposals on the old one, in about so many.
FORGET_TOKENS = 150_000


@dataclass(frozen=True)
class Options:
    """As the options of `tide simulate` of the same names; seconds, tokens, bytes. gigabytes, teraflops: of each GPU,
    GB/s and TFLOP/s, in the place of the data sheets'."""

    workload: Path | None = None
    rate: float | None = None
    concurrency: int | None = None
    speed: float = 1.0
    input_tokens: int = 1000
    output_tokens: int = 300
    duration: float = 1800.0
    domains: int = 1
    shift: float | None = None
    first_length: float = 2.0
    reachable_length: float = 2.4
    learn_tokens: float = LEARN_TOKENS
    profile: Path | None = None
    gigabytes: float | None = None
    teraflops: float | None = None
    share: float = SHARE


def question(settings: Settings, target: Target, inventory: Inventory, options: Options) -> Question:
    """Raises UsageError, naming the option, for what contradicts itself or cannot be read."""
    shape = target_shape(target)
    if shape is None and target.folder:
        read_target_shape(target.folder)  # says what is wrong with it
    if shape is None:
        known = ", ".join(name for name, one in known_targets().items() if one.shape)
        raise UsageError(
            f"the shape of {target.name} is not known here", remedy=f"name a checkpoint's folder, or one of {known}"
        )
    _check(settings, options)
    figures = None
    if options.gigabytes is not None and options.teraflops is not None:
        figures = GpuFigures(options.gigabytes * 1e9, options.teraflops * 1e12)
    division = Division(
        inventory,
        shape,
        Wishes.of(settings),
        draft_shape(settings.draft),
        name=target.name,
        others={name: one.shape for name, one in known_targets().items() if one.shape},
        figures=figures,
        machine=None if options.profile is None else Measured.of(_profile(options.profile)),
        share=options.share,
        profiles=settings.paths.profiles,
    )
    trace = None if options.workload is None else read_trace(options.workload)
    concurrency = options.concurrency
    if trace is None and options.rate is None and concurrency is None:
        concurrency = settings.max_running_requests
    load = Load(
        trace=trace,
        rate=options.rate,
        concurrency=concurrency,
        speed=options.speed,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
    )
    learnable = Learnable(
        options.first_length, options.reachable_length, options.learn_tokens, FORGET_TOKENS, settings.draft_steps
    )
    shift = float("inf") if options.shift is None else options.shift
    return Question(division, settings, load, learnable, options.duration, options.domains, shift)


def _check(settings: Settings, options: Options) -> None:
    given = [
        name
        for name, value in (
            ("--workload", options.workload),
            ("--rate", options.rate),
            ("--concurrency", options.concurrency),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} contradict each other", remedy="give one load")
    if options.speed != 1.0 and options.workload is None:
        raise UsageError("--speed is that of a --workload, and none is given")
    for name, value in (
        ("--rate", options.rate),
        ("--speed", options.speed),
        ("--duration", options.duration),
        ("--shift-every", options.shift),
        ("--learn-tokens", options.learn_tokens),
        ("--bandwidth", options.gigabytes),
        ("--tflops", options.teraflops),
    ):
        if value is not None and value <= 0:
            raise UsageError(
                f"{name} {value:g}: it takes a number above 0", remedy=f"give another {name}, or leave it out"
            )
    if (options.gigabytes is None) != (options.teraflops is None):
        raise UsageError("--bandwidth and --tflops go together", remedy="give both, or neither")
    if (options.shift is None) != (options.domains == 1):
        raise UsageError("--domains and --shift-every go together", remedy="give at least 2 domains, and the seconds")
    if not 0 < options.share < 1:
        raise UsageError(f"--trainer-share {options.share:g}: it takes a part between 0 and 1")
    longest = settings.draft_steps + 1
    if not 1 <= options.first_length <= options.reachable_length < longest:
        raise UsageError(
            f"--first-length {options.first_length:g} and --reachable-length {options.reachable_length:g} cannot be",
            why=f"acceptance lengths of {settings.draft_steps} draft steps rise from 1 to less than {longest}",
        )


def _profile(file: Path) -> Profile:
    try:
        return Profile.from_json(json_object(read_named(file)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"cannot read the profile {file}", why=reason(error), remedy="`tide profile` says where it keeps one"
        ) from None
