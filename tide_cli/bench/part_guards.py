"""Guards of `tide bench capture`, `swap`, `train`, `profile` and `spool`: bounds on a part's own figures. Pure.

And what makes such a measurement fail without any guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tide_cli.bench.guards import Finding, Guard, check_guards, finding, parse_guard
from tide_cli.errors import UsageError
from tide_cli.printable import many

_PASS = ("output_tok_s", "itl_p50_ms", "itl_p95_ms", "ttft_p50_ms", "acceptance_length")
_LENGTHS = ("acceptance_length", "length_difference")
_TRAINED = ("acceptance_length", "bytes_per_token", "stored_bytes")
_FIGURES: dict[str, dict[str, tuple[str, ...]]] = {
    "capture": {
        "capture": ("throughput_ratio", "itl_p95_ratio", "errors", "same", "stored_tokens", "dropped_requests"),
        "on": _PASS,
        "off": _PASS,
    },
    "swap": {
        "swap": (
            *("errors", "failed_requests", "changed_texts", "refused_swaps", "swaps", "added_gap_ms"),
            *("added_gap_max_ms", "usual_gap_ms", "usual_gap_p99_ms"),
        )
    },
    "train": {
        "train": ("tokens_s", "specforge_tokens_s", "ratio", "length_difference"),
        "first": ("acceptance_length",),
        "tide": _TRAINED,
        "specforge": _TRAINED,
    },
    "profile": {"profile": ("mean_error", "max_error", "errors")},
    "spool": {},
}
# of each batch size, of each hidden size
_BY_SIZE = {
    "profile": (
        *("measured", "predicted", "error", "acceptance_length", "round_tokens", "round_ms", "plain_round_ms"),
    ),
    "spool": (
        *("ingest_mb_s", "ingest_prefill_mb_s", "ingest_decode_mb_s", "memcpy_mb_s", "lmdb_mb_s", "lmdb_writemap_mb_s"),
        *("ingest_to_memcpy", "ingest_prefill_to_memcpy", "ingest_decode_to_memcpy", "ingest_to_lmdb"),
        *("ingest_to_lmdb_writemap", "spool_read_mb_s", "read_to_memcpy", "read_to_lmdb", "row_bytes"),
        *("spool_cpu_s_per_gib", "core_share", "tokens_s", "call_ms_p50", "call_ms_p99", "call_ms_max"),
    ),
}
SUCH_AS = {  # guards of each part, for a remedy
    "capture": "'throughput_ratio>=0.99' or 'on:itl_p95_ms<=80'",
    "swap": "'added_gap_ms<=100' or 'errors<=0'",
    "train": "'ratio>=1' or 'tide:acceptance_length>=1.5'",
    "profile": "'mean_error<=0.09' or '4:measured>=1.1'",
    "spool": "'ingest_to_memcpy>=0.5' or '576:ingest_mb_s>=500'",
}
_PLACES = {"capture": "capture {}", "profile": "{} at a time", "spool": "hidden size {}"}

Known = Mapping[str, Sequence[str]]  # place, which is what stands before a guard's colon -> its figures


def known_figures(name: str, *, sizes: Iterable[int] = (), lengths: bool = True) -> Known:
    """What a measurement of that part will have. sizes: batch sizes or hidden sizes; lengths: acceptance lengths."""
    known = _FIGURES[name] | {str(size): _BY_SIZE[name] for size in sizes}
    without = () if lengths else _LENGTHS
    return {place: [figure for figure in figures if figure not in without] for place, figures in known.items()}


def part_guards(texts: Iterable[str], known: Known, such_as: str = "'errors<=0'") -> list[Guard]:
    """such_as: good ones, see SUCH_AS. Raises UsageError for what is no guard, or one that a measurement with these
    figures cannot answer."""
    guards = [parse_guard(text, such_as) for text in texts]
    for guard in guards:
        if guard.ratio:
            raise UsageError(
                f"--guard {guard.text!r}: a figure here is compared under a name of its own",
                remedy="leave out the x, and name a ratio where there is one",
            )
        figures = known.get(guard.mode or "", list(dict.fromkeys(name for names in known.values() for name in names)))
        check_guards([guard], list(known), figures, ())
    # guards of errors say which failed requests are allowed, whatever the report calls them
    return [replace(guard, figure="errors") if guard.figure == "failed_requests" else guard for guard in guards]


def judge_part(guards: Sequence[Guard], name: str, found: Mapping[str, Any], known: Known) -> list[Finding]:
    """Every guard at every place that has such a figure; not met where it is missing after all."""
    values, errors = _values(name, found), _errors(found)
    failed = f"{many(errors, 'request')} failed" if errors and not _allowed("errors", errors, guards) else ""
    return [
        finding(guard, _words(name, place), values.get(place, {}).get(guard.figure), failed)
        for guard in guards
        for place, figures in known.items()
        if guard.mode in (None, place) and guard.figure in figures
    ]


def failures(name: str, found: Mapping[str, Any], guards: Sequence[Guard]) -> list[str]:
    """Why a measurement failed whatever its figures are, in sentences: what the part must not do, and what could not
    be measured. A guard such as `errors<=2` that is met allows what it bounds."""
    errors, refused, changed = _errors(found), found.get("refused_swaps", 0), found.get("changed_texts", 0)
    told = [
        ("errors", errors, f"{many(errors, 'request')} failed: {'; '.join(found.get('reasons', ()))}"),
        ("refused_swaps", refused, f"{many(refused, 'swap')} refused: {'; '.join(found.get('refusals', ()))}"),
        (
            "changed_texts",
            changed,
            f"{changed} of {many(found.get('requests', 0), 'text')} differ from those without swaps; below float32 "
            "another grouping of the requests alone can do that",
        ),
    ]
    lines = [words for figure, count, words in told if count and not _allowed(figure, count, guards)]
    if name == "swap" and not found["swaps"]:
        lines.append("no swap fell into a stream: choose longer answers with --max-tokens, or a smaller --every")
    if left_out := found.get("left_out"):
        sizes = ", ".join(map(str, left_out))
        lines.append(f"no figure for {sizes} at a time, whose answers did not overlap: choose a larger --max-tokens")
    return lines


def _values(name: str, found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Place to its figures."""
    if name == "capture":
        return {name: found, "on": found["on"], "off": found["off"]}
    if name == "train":
        drafts = ("first", "tide", "specforge")
        return {name: found, **{one: {figure: (found[figure] or {}).get(one) for figure in _TRAINED} for one in drafts}}
    if name == "profile":
        return {name: found, **{str(one["batch"]): one for one in found["batches"]}}
    if name == "spool":
        return {str(one["hidden_size"]): {**one["paced"], **one} for one in found["by_hidden_size"]}
    return {name: {**found, "errors": _errors(found)}}


def _errors(found: Mapping[str, Any]) -> int:
    return int(found.get("errors", found.get("failed_requests", 0)))


def _allowed(figure: str, count: float, guards: Sequence[Guard]) -> bool:
    return any(guard.figure == figure and guard.holds(count) for guard in guards)


def _words(name: str, place: str) -> str:
    return place if place == name else _PLACES.get(name, "{}").format(place)
