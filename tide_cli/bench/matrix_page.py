"""The HTML report of `tide bench matrix`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tide_cli.bench import page
from tide_cli.bench.matrix import MODES
from tide_cli.bench.matrix_table import brackets, failures, load_of, reading, rows, short
from tide_cli.bench.plots import Series, bars, has_plots, lines
from tide_cli.printable import many

_WORDS = {
    "plain": "plain: the target alone, one token a step",
    "static": "static: speculation with the draft as it was before any adaptation, always on",
    "adapted": "adapted: speculation with the adapted draft, always on, with capture as in service",
    "policy": "policy: the adapted draft, with the number of draft steps chosen in each round (0 is plain decoding)",
}
_TERMS = (
    "Output tok/s: completion tokens of all answers per second of a pass; the median of the rounds, with bars from the "
    "lowest to the highest round. More is better.",
    "Inter-token latency: the time between two arrivals, shared among the tokens that came together. Less is better.",
    "Time to first token: from the sending of a request to its first token, waiting in the queue included.",
    "Acceptance length: completion tokens per step of the target, its own token included; 1 means that the draft was "
    "of no use.",
    "95 % interval: from how the figure varies over the rounds and over the requests, where a request in all rounds "
    "counts as one; none for the output of a single round.",
    "Every mode answered the same requests; each round began with another mode, and the prefix cache was emptied "
    "before every pass. Rates, latencies and ratios are medians over the rounds. Ratios are taken within a round, so "
    "that a slow moment of the machine weighs on both sides.",
)


def matrix_page(report: Mapping[str, Any]) -> str:
    """report: what `tide bench matrix --json` prints."""
    matrix, environment = report["matrix"], report["environment"]
    plan, cells = matrix["plan"], matrix["cells"]
    lead = (
        f"{plan['target']} on {environment['cpu']}: {many(plan['requests'], 'request')} from "
        f"{', '.join(matrix['domains'])}, answered in each of {plan['rounds']} rounds by {', '.join(plan['modes'])}."
    )
    return page.page("TIDE: benchmark of speculation", lead, _sections(report, matrix, cells, plan))


def _sections(
    report: Mapping[str, Any], matrix: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]
) -> Iterator[str]:
    alone = ["Only one mode was measured."] if len(plan["modes"]) == 1 else []
    failed = page.items(failures(matrix), bad=True)
    yield page.section("In short", page.items(alone + reading(matrix)), failed, page.guards(matrix["guards"]))
    terms = [_WORDS[mode] for mode in plan["modes"]]
    yield page.section("How to read this", page.items([*terms, *_TERMS]))
    yield page.section("Plots", *([] if has_plots() else [page.paragraph(page.NO_PLOTS)]), *_plots(matrix, cells))
    for load in dict.fromkeys(load_of(cell) for cell in cells):
        here = [cell["mode"] for cell in cells if load_of(cell) == load]
        table = page.table(["", *here], rows(load, matrix))
        yield page.section(load.words(), table, page.paragraph(brackets(matrix) or ""))
    for name, words in (("by_prompt_tokens", "length of the prompt"), ("by_output_tokens", "length of the answer")):
        yield page.section(f"By {words}", page.table(_BAND_HEADER, _bands(cells, name)))
    yield page.section(
        "The client against the engine", page.paragraph(_CLIENT), page.table(_CLIENT_HEADER, _client(cells))
    )
    yield page.section("Conditions", page.conditions(report["environment"], _plan_facts(plan)))


def _plots(matrix: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    loads = list(dict.fromkeys(load_of(cell) for cell in cells))
    modes = list(dict.fromkeys(cell["mode"] for cell in cells))
    by_place = {(cell["mode"], load_of(cell)): cell for cell in cells}
    groups = [load.words() for load in loads]

    def series(name: str, *, spread: bool = False) -> list[Series]:
        found = []
        for mode in modes:
            here = [by_place.get((mode, load), {}) for load in loads]
            ends = [(cell.get("spread", {}).get(name) or (None, None)) for cell in here] if spread else None
            values = [cell.get(name) for cell in here]
            low, high = ([end[i] for end in ends] for i in (0, 1)) if ends else (None, None)
            found.append(Series(mode, values, low, high, MODES.index(mode)))
        return found

    yield page.plot(bars(groups, series("output_tok_s", spread=True), unit="output tok/s"), "Throughput by load.")
    yield page.plot(
        bars(groups, series("itl_p95_ms", spread=True), unit="inter-token latency, p95, ms"),
        "The slowest twentieth of the gaps between tokens.",
    )
    yield page.plot(bars(groups, series("ttft_p95_ms"), unit="time to first token, p95, ms"), "Waiting for an answer.")
    first = cells[0]["mode"] if cells else ""
    for load in loads:
        entries = [one for one in matrix["ratios"] if load_of(one) == load and one["to"] == first]
        domains = [one["domain"] or "all" for one in entries[0]["by_domain"]] if entries else []
        shown = []
        for one in entries:
            found = [domain["request_tok_s"] for domain in one["by_domain"]]
            ends = [(ratio or {}).get("interval") or (None, None) for ratio in found]
            values = [ratio["ratio"] if ratio else None for ratio in found]
            low, high = ([end[place] for end in ends] for place in (0, 1))
            shown.append(Series(one["mode"], values, low, high, MODES.index(one["mode"])))
        if shown:
            svg = bars(domains, shown, unit=f"tok/s of a request, times {first}", at=1.0)
            yield page.plot(svg, f"By domain, {load.words()}; bars: 95 % intervals.")
    unit, colors = "accepted, share of the target's steps", {mode: MODES.index(mode) for mode in modes}
    for load in loads:
        positions = {
            cell["mode"]: [(i + 1.0, share) for i, share in enumerate(cell["acceptance_by_position"])]
            for cell in cells
            if cell["acceptance_by_position"] and load_of(cell) == load
        }
        if positions:
            svg = lines(positions, x_unit="draft token", unit=unit, dots=True, colors=colors)
            words = f"How far the target went along with the draft, {load.words()}; plain rounds of the policy count."
            yield page.plot(svg, words)


_BAND_HEADER = ("", "tokens", "requests", "TTFT p50, ms", "ITL p50, ms", "ITL p95, ms", "e2e p50, ms", "acceptance")


def _bands(cells: Sequence[Mapping[str, Any]], name: str) -> Iterator[Sequence[object]]:
    for cell in cells:
        for band in cell[name]:
            tokens = f"{band['from']} to {band['to'] - 1}" if band["to"] else f"{band['from']} and more"
            latencies = [short(band[one]) for one in ("ttft_p50_ms", "itl_p50_ms", "itl_p95_ms", "e2e_p50_ms")]
            yield cell["where"], tokens, band["requests"], *latencies, short(band["acceptance_length"], 2)


_CLIENT = (
    "Mean latencies as this client took them, and as the engine counts them in its own metrics, in milliseconds; what "
    "the client finds more is the way there and back. Last, the share of a core that the client took."
)
_CLIENT_HEADER = (
    "",
    "TTFT, client",
    "engine",
    "ITL, client",
    "engine",
    "end to end, client",
    "engine",
    "client's core",
)


def _client(cells: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for cell in cells:
        means = [short(cell.get(f"{side}_{name}_ms"), 2) for name in ("ttft", "itl", "e2e") for side in _SIDES]
        share = cell.get("client_cpu_share")
        yield cell["where"], *means, "-" if share is None else f"{share:.1%}"


_SIDES = ("client", "engine")


def _plan_facts(plan: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "target": f"{plan['target']}, revision {plan['target_revision'] or 'unknown'}",
        "workload": f"{plan['workload']['path']}, SHA-256 {plan['workload']['sha256'][:16]}",
        "sampling": f"temperature {plan['temperature']:g}, at most {plan['max_tokens']} tokens, seed {plan['seed']}",
        "time limit": f"{plan['timeout']:g} s",
    }
    for mode, settings in plan["settings"].items():
        told = (f"{name} {value}" for name, value in settings.items() if value not in (None, []))
        facts[f"settings of {mode}"] = ", ".join(told)
    for mode, draft in plan["drafts"].items():
        digest = f", SHA-256 {draft['sha256'][:16]}" if draft["sha256"] else ""
        facts[f"draft of {mode}"] = f"{draft['draft'] or 'the target’s own'}{digest}"
    return facts
