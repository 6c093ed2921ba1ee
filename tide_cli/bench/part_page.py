"""The HTML report of `tide bench capture`, `swap`, `train`, `profile` and `spool`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tide_cli.bench import page
from tide_cli.bench.part_tables import part_reading, part_table
from tide_cli.bench.plots import Series, bars, has_plots
from tide_cli.bench.words import condition

_TITLES = {
    "capture": "TIDE: what capture costs the traffic",
    "swap": "TIDE: whether a swap of the draft is noticed",
    "train": "TIDE: the trainer beside SpecForge's",
    "profile": "TIDE: what the speculation policy expects, and what comes out",
    "spool": "TIDE: the spool beside memcpy and LMDB",
}
_TERMS = {
    "capture": (
        "Two engines with the same draft and the same cores answered the same requests in turns, one of them storing "
        "hidden states. Ratios are medians over the rounds, in each of them with capture over without; quartiles in "
        "brackets. Inter-token latency: the time between two arrivals, shared among the tokens that came together.",
    ),
    "swap": (
        "All streams ran at once, each round once with swaps between two drafts and once without. What a swap adds is "
        "the longest pause between two arrivals that it fell into, less the usual pause of the pass without swaps. "
        "Quartiles in brackets.",
    ),
    "train": (
        "Both trained the same first draft on the same samples and cores, in turns; the last pass over all samples was "
        "timed. Rates are medians over the rounds, error bars and brackets are quartiles.",
        "Acceptance length: tokens for each step of the target, walked over held-out samples that neither has seen; 1 "
        "means that the draft was of no use. Error bars and the interval of the difference are of 95 %, over samples.",
    ),
    "profile": (
        "Expected: what a round of these answers brought, times the time of a plain round over that of a speculating "
        "one. Measured: output rate with the draft over the one without, while all streams ran; median over the "
        "rounds, with quartiles. The error is expected over measured, less 1.",
    ),
    "spool": (
        "The same rows, in turns, by one thread; nothing syncs but SQLite's checkpoints of the spool's index. MB/s are "
        "medians over the rounds, with quartiles in brackets.",
    ),
}
_TOLD = ("target", "dtype", "samples", "sample_count", "threads", "passes", "rounds", "streams", "concurrency")
_COLORS = {"first": 0, "tide": 2, "specforge": 1}
_NAMES = {"first": "first draft", "tide": "TIDE", "specforge": "SpecForge"}


def part_page(name: str, report: Mapping[str, Any]) -> str:
    """report: what `tide bench NAME --json` prints."""
    return page.page(_TITLES[name], f"On {report['environment']['cpu']}.", _sections(name, report))


def _sections(name: str, report: Mapping[str, Any]) -> Iterator[str]:
    found = report[name]
    failed = page.items(found["failures"], bad=True) if found["failures"] else ""
    yield page.section("In short", page.items(part_reading(name, found)), failed, page.guards(found["guards"]))
    yield page.section("How to read this", page.items(_TERMS[name]))
    if name in _PLOTS:
        plots = [page.plot(svg, caption) for svg, caption in _PLOTS[name](found)]
        yield page.section("Plots", *([] if has_plots() else [page.paragraph(page.NO_PLOTS)]), *plots)
    yield page.section("Figures", *(page.table(header, rows) for header, rows in part_table(name, found)))
    yield page.section("Conditions", page.conditions(report["environment"], _facts(found)))


def _facts(found: Mapping[str, Any]) -> dict[str, Any]:
    """What it was measured on, and what was chosen."""
    told = {name: found[name] for name in _TOLD if found.get(name) is not None}
    facts = {**told, **found.get("conditions", {}), **found.get("options", {}), **told}  # what came of an option wins
    facts |= {f"setting {name}": value for name, value in facts.pop("settings", {}).items()}
    return {name.replace("_", " "): condition(value) for name, value in facts.items() if value not in (None, [])}


Plots = Iterator[tuple[str | None, str]]  # SVG, caption


def _profile_plots(found: Mapping[str, Any]) -> Plots:
    batches = found["batches"]
    groups = [f"{one['batch']} at a time" for one in batches]
    low, high = ([one["spread"][end] for one in batches] for end in (0, 1))
    both = [
        Series("expected", [one["predicted"] for one in batches]),
        Series("measured", [one["measured"] for one in batches], low, high),
    ]
    yield bars(groups, both, unit="speed-up by the draft", at=1.0), "Expected and measured; below 1 plain is faster."
    error = [Series("error", [100 * one["error"] for one in batches], color=4)]
    yield bars(groups, error, unit="error of the expectation, %"), "Above 0 the policy expects too much of the draft."


def _train_plots(found: Mapping[str, Any]) -> Plots:
    rates = {"tide": "tokens_s", "specforge": "specforge_tokens_s"}
    of = [_one(side, found[name], found["spread"][name]) for side, name in rates.items()]
    yield bars(["last pass"], of, unit="tokens/s"), "How fast the two train; bars: quartiles of the rounds."
    if lengths := found["acceptance_length"]:
        intervals = found["acceptance_intervals"]
        of = [_one(draft, length, intervals[draft]) for draft, length in lengths.items()]
        yield (
            bars(["held-out samples"], of, unit="acceptance length", at=1.0),
            "What they have made of the first one.",
        )
    stored = [_one(side, size / 2**20, None) for side, size in found["stored_bytes"].items()]
    yield (
        bars(["samples"], stored, unit="MiB on the disk"),
        "The samples, in a spool and as SpecForge's files.",
    )
    seconds = [
        Series(_NAMES[side], [one["store"], one["pass"]], color=_COLORS[side]) for side, one in found["seconds"].items()
    ]
    yield bars(["to store the samples", "of a pass over them"], seconds, unit="seconds"), "How long it takes."


def _one(draft: str, value: float, ends: tuple[float, float] | None) -> Series:
    low, high = ends or (None, None)
    return Series(_NAMES[draft], [value], [low], [high], _COLORS[draft])


_PLOTS: dict[str, Callable[[Mapping[str, Any]], Plots]] = {"profile": _profile_plots, "train": _train_plots}
