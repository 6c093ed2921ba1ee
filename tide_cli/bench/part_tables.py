"""The figures of `tide bench capture`, `swap`, `train`, `profile` and `spool` as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tide_cli.bench.spool_table import spool_rows
from tide_cli.bench.words import figure
from tide_cli.printable import many, size_words

Table = tuple[Sequence[str], Sequence[Sequence[object]]]  # header, rows

_CAPTURE_ROWS = (
    ("output tok/s", "output_tok_s"),
    ("inter-token latency p50, ms", "itl_p50_ms"),
    ("inter-token latency p95, ms", "itl_p95_ms"),
    ("time to first token p50, ms", "ttft_p50_ms"),
    ("acceptance length", "acceptance_length"),
)


def part_table(name: str, found: Mapping[str, Any]) -> list[Table]:
    """The tables of a part's figures. name: the part's command, whose report has `found` under that name."""
    return {"capture": _capture, "swap": _swap, "train": _train, "profile": _profile, "spool": _spool}[name](found)


def part_reading(name: str, found: Mapping[str, Any]) -> list[str]:
    """What stands below the tables, and above them on a page: sentences."""
    read = {"capture": _read_capture, "train": _read_train, "profile": _read_profile, "spool": _read_spool}
    return read[name](found) if name in read else []


def spread(found: Mapping[str, Any], name: str, form: str = ".3f") -> str:
    """A median with its quartiles in brackets; '-' without."""
    if found[name] is None:
        return "-"
    low, high = found["spread"][name]
    return f"{found[name]:{form}} ({low:{form}}–{high:{form}})"


def _capture(found: Mapping[str, Any]) -> list[Table]:
    rows = [(words, *(figure(found[side][name], ".2f") for side in ("on", "off"))) for words, name in _CAPTURE_ROWS]
    return [(("", "capture on", "capture off"), rows)]


def _read_capture(found: Mapping[str, Any]) -> list[str]:
    return [
        f"throughput on / off  {spread(found, 'throughput_ratio')}",
        f"p95 inter-token latency on / off  {spread(found, 'itl_p95_ratio')}",
        f"{many(found['rounds'], 'round')}, {many(found['requests'], 'request')} each; {found['errors']} failed, "
        f"{found['same']} of {found['requests']} answers the same text; {found['stored_tokens']:,} tokens stored, "
        f"{many(found['dropped_requests'], 'request')} dropped",
    ]


def _swap(found: Mapping[str, Any]) -> list[Table]:
    rows = (
        ("requests that failed", found["failed_requests"]),
        ("texts as without swaps", "all" if found["identical"] else "not all"),
        ("whole answers with another text", found["changed_texts"]),
        ("swaps under running streams", found["swaps"]),
        ("swaps refused", found["refused_swaps"]),
        ("pause that a swap adds, median, ms", spread(found, "added_gap_ms", ".0f")),
        ("longest, ms", figure(found["added_gap_max_ms"], ".0f")),
        ("usual pause between two arrivals, ms", figure(found["usual_gap_ms"], ".0f")),
        ("99 % of them below, ms", figure(found["usual_gap_p99_ms"], ".0f")),
    )
    return [((f"{found['streams']} streams, {many(found['rounds'], 'round')}", ""), rows)]


def _train(found: Mapping[str, Any]) -> list[Table]:
    """How fast the two train; what they store, how long it takes them, and what comes out."""
    sides = ("tide", "specforge")
    lengths, seconds = found["acceptance_length"], [found["seconds"][side] for side in sides]
    rates = (
        ("TIDE, tokens/s", spread(found, "tokens_s", ".0f"), found["steps"]),
        ("SpecForge, tokens/s", spread(found, "specforge_tokens_s", ".0f"), found["specforge_steps"]),
        ("TIDE / SpecForge", spread(found, "ratio"), ""),
    )
    rest = [
        ("acceptance length, held-out samples", *(f"{lengths[side]:.3f}" if lengths else "-" for side in sides)),
        ("stored", *(size_words(found["stored_bytes"][side]) for side in sides)),
        ("bytes a token", *(f"{found['bytes_per_token'][side]:,.0f}" for side in sides)),
        ("seconds to store it", *(f"{one['store']:.2f}" for one in seconds)),
        ("seconds of a pass", *(f"{one['pass']:.1f}" for one in seconds)),
    ]
    return [(("", "median (quartiles)", "steps"), rates), (("", "TIDE", "SpecForge"), rest)]


def _read_train(found: Mapping[str, Any]) -> list[str]:
    lengths, interval = found["acceptance_length"], found["length_interval"]
    ends = f" ({interval[0]:+.3f} to {interval[1]:+.3f})" if interval else ""
    accuracy = (
        f"acceptance length of the first draft {lengths['first']:.3f}; TIDE's less SpecForge's "
        f"{found['length_difference']:+.3f}{ends}, on {many(found['held_out_samples'], 'held-out sample')}"
        if lengths
        else f"no acceptance length: {found['acceptance_note']}"
    )
    return [
        accuracy,
        f"{many(found['rounds'], 'round')} of {found['passes']} passes, {found['tokens']:,} tokens, "
        f"{many(found['sample_count'], 'sample')} ({found['samples']}), {many(found['threads'], 'thread')}, "
        f"{found['dtype']}, {found['depths']} depths; SpecForge's batches are "
        f"{many(found['specforge_batch_size'], 'sample')}, TIDE's at most {found['batch_tokens']} tokens",
    ]


def _profile(found: Mapping[str, Any]) -> list[Table]:
    header = ("batch", "plain round ms", "round ms", "acceptance length", "expected", "measured speed-up", "error")
    rows = [
        (
            one["batch"],
            f"{one['plain_round_ms']:.1f}",
            f"{one['round_ms']:.1f}",
            f"{one['acceptance_length']:.2f}",
            f"{one['predicted']:.2f}",
            spread(one | {"spread": {"measured": one["spread"]}}, "measured", ".2f"),
            f"{one['error']:+.1%}",
        )
        for one in found["batches"]
    ]
    return [(header, rows)]


def _read_profile(found: Mapping[str, Any]) -> list[str]:
    mean, most = (f"{100 * found[name]:.1f} %" for name in ("mean_error", "max_error"))
    return [f"error of the magnitude {mean} on average, {most} at most"]


def _spool(found: Mapping[str, Any]) -> list[Table]:
    return [spool_rows(found["by_hidden_size"])]


def _read_spool(found: Mapping[str, Any]) -> list[str]:
    return [
        f"rows of hidden size {one['hidden_size']}, {one['row_bytes']:,} bytes each: the spool takes in "
        f"{one['ingest_mb_s']:,.0f} MB/s, {one['ingest_to_memcpy']:.2f} times as much as a plain memcpy"
        for one in found["by_hidden_size"]
    ]
