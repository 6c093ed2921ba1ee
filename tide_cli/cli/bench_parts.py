"""`tide bench capture`, `swap`, `train` and `profile`: each part of TIDE, with the other side in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli.cli.bench import bench_app
from tide_cli.cli.load_options import MOST_REQUESTS, numbers
from tide_cli.cli.output import complain, print_json, print_table, words_of
from tide_cli.cli.progress import narrated
from tide_cli.cli.setting_options import Draft, Dtype, Target
from tide_cli.cli.where import Json, path_option
from tide_cli.printable import many, size_words

Workload = Annotated[
    Path | None,
    path_option("--workload", "Prompts: JSONL with OpenAI `messages`, or a folder.", "PATH", "generated"),
]
Rounds = Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Rounds; each takes every side once.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=8, help="Tokens of an answer at most.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the choice of prompts.")]


@bench_app.command("capture")
def capture(
    workload: Workload = None,
    requests: Annotated[int, typer.Option("--requests", min=1, max=MOST_REQUESTS, help="Requests of a pass.")] = 16,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=64, help="Requests at a time.")] = 4,
    rounds: Rounds = 5,
    max_tokens: MaxTokens = 64,
    target: Target = None,
    dtype: Dtype = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What capture costs the traffic.

    Storing the traffic's hidden states on and off, in turns.
    """
    from tide_cli.bench.capture import OFF, ON, CaptureBench
    from tide_cli.bench.load import load_requests

    wanted = load_requests(workload, requests, max_tokens, seed)
    bench = CaptureBench(wanted, concurrency, rounds, {"target": target, "dtype": dtype})
    found = _measured("capture", bench, json, workload=workload, seed=seed)
    if found is None:
        return
    names = ("output_tok_s", "itl_p50_ms", "itl_p95_ms", "ttft_p50_ms", "acceptance_length")
    rows = [(words_of(name), *(_figure(found[side][name]) for side in (ON, OFF))) for name in names]
    print_table(("", "capture on", "capture off"), rows)
    print()
    print(f"throughput on / off  {_spread(found, 'throughput_ratio')}")
    print(f"p95 inter-token latency on / off  {_spread(found, 'itl_p95_ratio')}")
    print(
        f"{many(found['rounds'], 'round')}, {many(found['requests'], 'request')} each; {found['errors']} failed, "
        f"{found['same']} of {found['requests']} answers the same text; {found['stored_tokens']:,} tokens stored, "
        f"{many(found['dropped_requests'], 'request')} dropped"
    )


@bench_app.command("swap")
def swap(
    workload: Workload = None,
    streams: Annotated[int, typer.Option("--streams", min=1, max=64, help="Requests that run at once.")] = 4,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two swaps.")] = 1.5,
    rounds: Rounds = 3,
    max_tokens: MaxTokens = 192,
    target: Target = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="auto, float32 or bfloat16.", show_default="that of the settings, else float32"),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Whether running requests notice a swap of the draft.

    Failures, changed texts, added pauses. Texts are compared with those of the same requests without swaps, which asks
    for float32 on a CPU.
    """
    from tide_cli.bench.engines import with_defaults
    from tide_cli.bench.load import load_requests
    from tide_cli.bench.swap import SwapBench

    wanted = load_requests(workload, streams, max_tokens, seed)
    settings = with_defaults({"dtype": "float32"}, {"target": target, "dtype": dtype})
    bench = SwapBench(wanted, rounds, every, settings)
    found = _measured("swap", bench, json, workload=workload, seed=seed)
    if found is None:
        return
    rows = (
        ("requests that failed", found["failed_requests"]),
        ("texts as without swaps", "all" if found["identical"] else "not all"),
        ("swaps under running streams", found["swaps"]),
        ("swaps refused", found["refused_swaps"]),
        ("pause that a swap adds, median", f"{_spread(found, 'added_gap_ms', '.0f')} ms"),
        ("longest", f"{found['added_gap_max_ms']:.0f} ms"),
        ("usual pause between two arrivals", f"{found['usual_gap_ms']:.0f} ms"),
        ("99 % of them below", f"{found['usual_gap_p99_ms']:.0f} ms"),
    )
    print_table((f"{found['streams']} streams, {found['rounds']} rounds", ""), rows)


@bench_app.command("train")
def train(
    samples: Annotated[
        Path | None,
        path_option("--samples", "A folder made by `tide spool export`.", show_default="made-up samples"),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=4, max=10000, help="Made-up samples.")] = 32,
    rounds: Rounds = 3,
    passes: Annotated[int, typer.Option("--passes", min=2, max=1000, help="Passes over all samples, each round.")] = 2,
    target: Target = None,
    json: Json = False,
) -> None:
    """The trainer beside SpecForge's own command line.

    The same samples, draft and cores, in turns. Each goes over all samples --passes times, and the last time is timed.
    In the end both drafts are walked over the export's held-out samples. Without a GPU SpecForge's Triton loss is
    replaced by the same sum in plain torch; all else of it is as it comes.
    """
    from tide_cli.bench.train import TrainBench

    found = _measured("train", TrainBench(rounds, passes, count, samples, {"target": target}), json)
    if found is None:
        return
    rows = (
        ("TIDE, tokens/s", _spread(found, "tokens_s", ".0f"), found["steps"]),
        ("SpecForge, tokens/s", _spread(found, "specforge_tokens_s", ".0f"), found["specforge_steps"]),
        ("TIDE / SpecForge", _spread(found, "ratio"), ""),
    )
    print_table(("", "median (quartiles)", "steps"), rows)
    print()
    print_table(("", "TIDE", "SpecForge"), _trained(found))
    print()
    print(_accuracy(found))
    print(
        f"{many(found['rounds'], 'round')} of {found['passes']} passes, {found['tokens']:,} tokens, "
        f"{many(found['sample_count'], 'sample')} ({found['samples']}), {many(found['threads'], 'thread')}, "
        f"{found['dtype']}, {found['depths']} depths; SpecForge's batches are "
        f"{many(found['specforge_batch_size'], 'sample')}, TIDE's at most {found['batch_tokens']} tokens"
    )


def _trained(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """What the two store, how long it takes them, and what comes out."""
    sides = ("tide", "specforge")
    lengths, seconds = found["acceptance_length"], [found["seconds"][side] for side in sides]
    return [
        ("acceptance length, held-out samples", *(f"{lengths[side]:.3f}" if lengths else "-" for side in sides)),
        ("stored", *(size_words(found["stored_bytes"][side]) for side in sides)),
        ("bytes a token", *(f"{found['bytes_per_token'][side]:,.0f}" for side in sides)),
        ("seconds to store it", *(f"{one['store']:.2f}" for one in seconds)),
        ("seconds of a pass", *(f"{one['pass']:.1f}" for one in seconds)),
    ]


def _accuracy(found: dict[str, Any]) -> str:
    lengths, interval = found["acceptance_length"], found["length_interval"]
    if lengths is None:
        return f"no acceptance length: {found['acceptance_note']}"
    ends = f" ({interval[0]:+.3f} to {interval[1]:+.3f})" if interval else ""
    return (
        f"acceptance length of the first draft {lengths['first']:.3f}; TIDE's less SpecForge's "
        f"{found['length_difference']:+.3f}{ends}, on {many(found['held_out_samples'], 'held-out sample')}"
    )


@bench_app.command("profile")
def profile(
    workload: Workload = None,
    batches: Annotated[
        str, typer.Option("--batches", metavar="N,M", help="Requests that decode together.")
    ] = "1,2,4,8",
    rounds: Rounds = 3,
    max_tokens: MaxTokens = 64,
    draft: Draft = None,
    target: Target = None,
    dtype: Dtype = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What the speculation policy expects, and what comes out.

    By batch size, from measured round times. A target without a published draft has one that nobody has trained: little
    of it is accepted, which tells the costs but not what a good draft would bring.
    """
    from tide_cli.bench.load import load_requests
    from tide_cli.bench.profile import ProfileBench

    sizes = [int(size) for size in numbers(batches, "--batches", whole=True)]
    wanted = load_requests(workload, max(sizes), max_tokens, seed)
    settings = {"target": target, "dtype": dtype, "draft": draft}
    found = _measured("profile", ProfileBench(wanted, sizes, rounds, settings), json, workload=workload, seed=seed)
    if found is None:
        return
    rows = [
        (
            one["batch"],
            f"{one['plain_round_ms']:.1f}",
            f"{one['round_ms']:.1f}",
            f"{one['acceptance_length']:.2f}",
            f"{one['predicted']:.2f}",
            f"{one['measured']:.2f} ({one['spread'][0]:.2f}–{one['spread'][1]:.2f})",
            f"{one['error']:+.1%}",
        )
        for one in found["batches"]
    ]
    header = ("batch", "plain round ms", "round ms", "acceptance length", "expected", "measured speed-up", "error")
    print_table(header, rows)
    mean, most = (f"{100 * found[name]:.1f} %" for name in ("mean_error", "max_error"))
    print(f"error of the magnitude {mean} on average, {most} at most")


def _measured(name: str, bench: Any, json: bool, **asked: Any) -> dict[str, Any] | None:
    """The figures, or None after they were printed as JSON with what they were taken under.

    asked: what was asked for and cannot be seen from the bench.
    """
    from tide_cli.bench.options import options_of
    from tide_cli.bench.report import busy_warning, make_report, take_environment

    environment = take_environment()
    options = options_of(bench, **asked)
    try:
        with narrated(busy_warning(environment)) as progress:
            found = bench.run(progress) | {"options": options}
    except KeyboardInterrupt:
        complain(["interrupted: nothing is left behind"])
        raise
    if json:
        print_json(make_report(environment, **{name: found}))
        return None
    return found


def _spread(found: dict[str, Any], name: str, form: str = ".3f") -> str:
    low, high = found["spread"][name]
    return f"{found[name]:{form}} ({low:{form}}–{high:{form}})"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
