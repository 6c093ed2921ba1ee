"""The figures of `tide bench adapt` as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from tide_cli.bench.adapt_figures import STATIC, TIDE
from tide_cli.bench.shift import GENERAL
from tide_cli.bench.words import figure
from tide_cli.printable import many

_FEWEST_ROUNDS = 3  # whose quartiles say something


def as_tables(adapt: dict[str, Any]) -> RenderableType:
    """Held-out prompts of each domain, and how each phase of the traffic went; then what it says in words."""
    parts: list[RenderableType] = []
    if adapt["domains"]:
        parts.append(_domains(adapt))
    if adapt["phases"]:
        parts += [_phases(adapt), *traffic_load(adapt)]
    return Group(*parts, *reading(adapt))


def measured(adapt: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What was measured in the end: the domains, and general traffic last."""
    return {**adapt["domains"], **({GENERAL: adapt["general"]} if adapt["general"] else {})}


def _domains(adapt: dict[str, Any]) -> Table:
    table = _table("Held-out prompts, drafts in turns, the trainer idle: tok/s and acceptance length; tide: its last")
    table.add_column("domain")
    names = ["at a time", "static", "own", "tide", "tide / static", "own / static", "plain", "tide / plain"]
    policy = any("policy_tok_s" in at for figures in measured(adapt).values() for at in figures["at"].values())
    for name in (*names, *["policy", "policy / plain"] * policy):
        table.add_column(name, justify="right")
    for name, figures in measured(adapt).items():
        for place, (concurrency, at) in enumerate(figures["at"].items()):
            table.add_row(
                "" if place else name,
                concurrency,
                _rate_and_length(at, "static"),
                _rate_and_length(at, "own"),
                _rate_and_length(at, "tide"),
                ratio(at, "ratio"),
                ratio(at, "own_ratio"),
                figure(at.get("plain_tok_s"), ".1f"),
                ratio(at, "tide_to_plain"),
                *[_rate_and_length(at, "policy"), ratio(at, "policy_to_plain")] * policy,
            )
    return table


def _phases(adapt: dict[str, Any]) -> Table:
    table = _table(
        "Traffic, last third of each phase: tok/s and acceptance length; tokens and seconds until 90 % of the gain"
    )
    table.add_column("phase")
    for name in ("static", "arm", "", "ratio", "gain", "tokens", "seconds", "back again after"):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for phase in adapt["phases"]:
        static = phase["arms"][STATIC]
        for place, (arm, live) in enumerate(phase["live"].items()):
            own, again = phase["arms"][arm], live["recovered"]
            visit = f" ({phase['visit'] + 1})" if phase["visit"] else ""
            table.add_row(
                "" if place else phase["name"] + visit,
                "" if place else f"{under(phase, STATIC, 'late_tok_s')}  {figure(static['late_al'], '.2f')}",
                arm,
                f"{under(phase, arm, 'late_tok_s')}  {figure(own['late_al'], '.2f')}",
                under(phase, arm, "late_ratio"),
                gain(live),
                *reached(live),
                f"{again['tokens']:,.0f} tokens" if again else "-",
            )
    return table


def under(phase: Mapping[str, Any], arm: str, name: str) -> str:
    """A phase's rate or ratio of rates; at each concurrency where it had several, '10.1 / 24.9'."""
    alone = phase["live"] if name == "late_ratio" else phase["arms"]
    digits = ".2f" if name == "late_ratio" else ".1f"
    return " / ".join(figure(of[arm][name], digits) for of in phase.get("at", {"": alone}).values())


def traffic_load(adapt: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of the rates of the traffic, unless it came at one concurrency."""
    if adapt["options"].get("trace"):
        yield (
            "The requests of the traffic came when the trace says, whatever had been answered: its output tok/s and "
            "their ratios say how much was asked for, as far as the engine kept up, and little of its speed."
        )
    loads = next((list(phase["at"]) for phase in adapt["phases"] if "at" in phase), [])
    if loads:
        yield (
            f"{' / '.join(loads)}: a phase's pieces were answered so many at a time in turn. Its rates and their "
            "ratios stand there for each, over the last third of its own pieces; its lengths and gains are of all."
        )


def gain(live: Mapping[str, Any]) -> str:
    """With its standard error."""
    return f"{live['gain']:+.2f}" + ("" if live["gain_error"] is None else f" ± {live['gain_error']:.2f}")


def reached(live: Mapping[str, Any]) -> tuple[str, str]:
    """Tokens and seconds until 90 % of the gain."""
    if not live["to_90"]:
        return "no clear gain", "-"
    return f"{live['to_90']['tokens']:,.0f}", f"{live['to_90']['seconds']:,.0f}"


def reading(adapt: Mapping[str, Any]) -> Iterator[str]:
    """What the figures say, a sentence a line."""
    ends = measured(adapt)
    load = next((f"With {load} at a time" for figures in ends.values() for load in figures["at"]), "")
    ratios = {name: figures["ratio"] for name, figures in ends.items() if "ratio" in figures}
    if ratios:
        best, least = max(ratios, key=lambda n: ratios[n]), min(ratios, key=lambda n: ratios[n])
        others = f", the best, and {ratios[least]:.2f} times on {least}, the least" if len(ratios) > 1 else ""
        yield f"{load} TIDE's last draft gives {ratios[best]:.2f} times the output of the static one on {best}{others}."
    slower = [words for name, figures in ends.items() if (words := _slower(name, figures["at"]))]
    if slower:
        yield f"It gives less than decoding without a draft on {', '.join(slower)}."
    first = adapt["first_domain"]
    if first and {"static_al", "tide_al"} <= first.keys():
        own = f", {first['own_al']:.2f} when its traffic ended" if "own_al" in first else ""
        yield (
            f"The first domain, {first['name']}: acceptance length {first['static_al']:.2f} with the static "
            f"draft{own}, {first['tide_al']:.2f} with TIDE's last one."
        )
    to_plain = [figures["policy_to_plain"] for figures in ends.values() if "policy_to_plain" in figures]
    if to_plain:
        yield (
            f"{load} the speculation policy, with the draft that its arm has learned, gives {min(to_plain):.2f} to "
            f"{max(to_plain):.2f} times the output of decoding without a draft."
        )
    swaps = sum(event["kind"] == "swap" for event in adapt["events"])
    refused = sum(event["kind"] == "gate" and "not passed" in event["text"] for event in adapt["events"])
    yield f"During the traffic: {many(swaps, 'draft')} put into service, {many(refused, 'candidate')} refused."
    measuring = sum(at["errors"] for figures in ends.values() for at in figures["at"].values())
    errors = sum(of["errors"] for phase in adapt["phases"] for of in phase["arms"].values())
    errors += adapt["static"]["errors"] + measuring
    same = adapt["identical"]
    equal = f"{same['same']} of {same['requests']} answers were the same text in every arm"
    why = f" ({'; '.join(adapt['reasons'])})" if adapt.get("reasons") else ""
    yield f"{many(errors, 'request')} failed{why}; {equal}."
    if measuring:
        yield f"{many(measuring, 'request')} failed in the comparison at the end: the rounds with them do not count."
    share = [phase["arms"][TIDE]["training_share"] for phase in adapt["phases"]]
    if share:
        yield f"A training cycle was running at the end of {sum(share) / len(share):.0%} of TIDE's pieces."
    if not adapt["finished"]:
        yield "The experiment is not finished: these are the figures so far."


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE, title_justify="left")


def _rate_and_length(at: dict[str, Any], name: str) -> str:
    if f"{name}_tok_s" not in at:
        return "-"
    return f"{at[f'{name}_tok_s']:.1f}  {figure(at[f'{name}_al'], '.2f')}"


def _slower(name: str, at: Mapping[str, Mapping[str, Any]]) -> str:
    """'sql (0.90 times with 4 at a time)'; empty where the last draft is nowhere slower than plain decoding."""
    behind = {load: round(of["tide_to_plain"], 2) for load, of in at.items() if "tide_to_plain" in of}
    words = [f"{times:.2f} times with {load} at a time" for load, times in behind.items() if times < 1]
    return f"{name} ({', '.join(words)})" if words else ""


def spread(at: Mapping[str, Any], name: str) -> list[float] | None:
    """The quartiles of a ratio; None where too few rounds were measured to have any."""
    return at.get(f"{name}_spread") if at.get("rounds", 0) >= _FEWEST_ROUNDS else None


def ratio(at: Mapping[str, Any], name: str) -> str:
    """The ratio `name`, with its quartiles where there are some."""
    ends = spread(at, name)
    return figure(at.get(name), ".2f") + (f" ({ends[0]:.2f}–{ends[1]:.2f})" if ends else "")
