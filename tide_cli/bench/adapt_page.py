"""The HTML report of `tide bench adapt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tide_cli.bench import page
from tide_cli.bench.adapt_curves import COLORS, by_concurrency, curves
from tide_cli.bench.adapt_figures import OWN, PLAIN, POLICY, STATIC, TIDE
from tide_cli.bench.adapt_table import gain, measured, ratio, reached, reading, spread, traffic_load, under
from tide_cli.bench.plots import Series, bars, has_plots
from tide_cli.bench.words import condition, figure
from tide_cli.printable import many

_TERMS = (
    "static: the draft that every arm began with; it is never trained again.",
    "tide: the draft goes on learning from the traffic, in cycles, and is replaced when a candidate passes the gate. "
    "In the comparison at the end it is the last draft.",
    "own: the draft that was in service when the domain's traffic ended. plain: decoding without a draft.",
    "no_pool: learns like tide, but never tries kept drafts. policy: learns like tide and serves with --speculation "
    "auto; in the comparison at the end with the last draft that it has learned itself.",
    "Acceptance length: completion tokens per step of the served model, its own token included; 1 means that the draft "
    "was of no use.",
    "Output tok/s: completion tokens of all answers per second, the time for their prompts included.",
    "Swap: another draft comes into service; taken back: the one before returns. Its version stands beside the line.",
    "Phase by phase, lengths, rates and the gain are those of the last third of its pieces, and 90 % of the gain is "
    "looked for over as many pieces. Behind the ± stands the gain's standard error, from the scatter between one piece "
    "and the next; a gain below two of them is not clear, and has no 90 %.",
    "The arms got the same requests in the same order, piece by piece in turns. Comparisons at the end are medians "
    "over rounds in which every draft answered the same held-out prompts, the trainer idle. Error bars and brackets "
    "are quartiles, where there were three rounds or more.",
)
_NAMES = (STATIC, OWN, TIDE, POLICY, PLAIN)


def adapt_page(report: Mapping[str, Any]) -> str:
    """report: what `tide bench adapt --json` prints."""
    adapt, environment = report["adapt"], report["environment"]
    names = [phase["name"] for phase in adapt["phases"]]
    lead = (
        f"{adapt['options']['settings'].get('target', 'The target')} on {environment['cpu']}: traffic of "
        f"{', '.join(names) or 'no domain yet'}, one after another, against a draft that stands still and one that "
        "learns."
    )
    return page.page("TIDE: a draft that follows the traffic", lead, _sections(report, adapt))


def _sections(report: Mapping[str, Any], adapt: Mapping[str, Any]) -> Iterator[str]:
    failed = page.items(adapt["failures"], bad=True) if adapt.get("failures") else ""
    yield page.section("In short", page.items(reading(adapt)), failed, page.guards(adapt.get("guards", ())))
    yield page.section("How to read this", page.items([*_TERMS, *traffic_load(adapt)]))
    yield page.section("Plots", *([] if has_plots() else [page.paragraph(page.NO_PLOTS)]), *_plots(adapt))
    yield page.section("Held-out prompts", page.table(_DOMAIN_HEADER, _domain_rows(adapt)))
    yield page.section("The traffic, phase by phase", page.table(_PHASE_HEADER, _phase_rows(adapt)))
    events = [(f"{one['wall_s']:,.0f} s", f"{one['tokens']:,}", one["text"]) for one in adapt["events"]]
    yield page.section("What TIDE decided", page.table(("after", "tokens", "event"), events, kind="facts"))
    facts = {name.replace("_", " "): value for name, value in adapt["options"].items() if name != "settings"}
    facts |= {f"setting {name}": value for name, value in adapt["options"]["settings"].items()}
    said = {name: condition(value) for name, value in facts.items()}
    yield page.section("Conditions", page.conditions(report["environment"], said))


def _plots(adapt: Mapping[str, Any]) -> Iterator[str]:
    yield from curves(adapt)
    yield from by_concurrency(adapt["domains"])
    domains = measured(adapt)
    for concurrency in dict.fromkeys(c for figures in domains.values() for c in figures["at"]):
        at = {name: figures["at"].get(concurrency, {}) for name, figures in domains.items()}
        at_once = many(int(concurrency), "request")
        ratios = [_series(at, TIDE, "ratio"), *(_series(at, name, f"{name}_ratio") for name in (OWN, POLICY))]
        shown = [one for one in ratios if any(value is not None for value in one.values)]
        svg = bars(list(at), shown, unit="output tok/s, times static", at=1.0)
        yield page.plot(svg, f"Against the static draft, {at_once} at a time.")
        normalised = [_series(at, name, f"{name}_to_plain") for name in (STATIC, OWN, TIDE, POLICY)]
        shown = [one for one in normalised if any(value is not None for value in one.values)]
        if shown:
            svg = bars(list(at), shown, unit="output tok/s, times plain", at=1.0)
            yield page.plot(svg, f"Against decoding without a draft, {at_once} at a time.")


def _series(at: Mapping[str, Mapping[str, Any]], name: str, label: str) -> Series:
    """Bars of `name`: the figure `label` of each domain, with its quartiles."""
    ends = [spread(figures, label) or (None, None) for figures in at.values()]
    values = [figures.get(label) for figures in at.values()]
    return Series(name, values, [low for low, _ in ends], [high for _, high in ends], COLORS[name])


_DOMAIN_HEADER = (
    *("", "at a time", "rounds", "static tok/s", "own", "tide", "policy", "plain", "tide / static", "own / static"),
    *("static / plain", "tide / plain", "policy / plain", "static length", "own", "tide", "policy"),
)


def _domain_rows(adapt: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for name, figures in measured(adapt).items():
        for concurrency, at in figures["at"].items():
            rates = [figure(at.get(f"{one}_tok_s"), ".1f") for one in _NAMES]
            labels = ("ratio", "own_ratio", *(f"{one}_to_plain" for one in (STATIC, TIDE, POLICY)))
            ratios = [ratio(at, label) for label in labels]
            lengths = [figure(at.get(f"{one}_al"), ".2f") for one in (STATIC, OWN, TIDE, POLICY)]
            yield name, concurrency, at["rounds"], *rates, *ratios, *lengths


_PHASE_HEADER = (
    *("", "arm", "tokens", "static length", "its length", "gain", "static tok/s", "its tok/s", "ratio"),
    *("tokens to 90 %", "seconds", "back again after, tokens"),
)


def _phase_rows(adapt: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for phase in adapt["phases"]:
        static = phase["arms"][STATIC]
        for arm, live in phase["live"].items():
            own, again = phase["arms"][arm], live["recovered"] or {}
            yield (
                phase["name"] + (f", visit {phase['visit'] + 1}" if phase["visit"] else ""),
                arm,
                f"{phase['tokens']:,}",
                figure(static["late_al"], ".2f"),
                figure(own["late_al"], ".2f"),
                gain(live),
                under(phase, STATIC, "late_tok_s"),
                under(phase, arm, "late_tok_s"),
                under(phase, arm, "late_ratio"),
                *reached(live),
                figure(again.get("tokens"), ",.0f"),
            )
