"""The figures of `tide bench adapt` as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from tide_cli.bench.adapt_figures import STATIC, TIDE
from tide_cli.bench.shift import GENERAL
from tide_cli.printable import many


def as_tables(adapt: dict[str, Any]) -> RenderableType:
    """Held-out prompts of each domain, and how each phase of the traffic went; then what it says in words."""
    parts: list[RenderableType] = []
    if adapt["domains"]:
        parts.append(_domains(adapt))
    if adapt["phases"]:
        parts.append(_phases(adapt))
    return Group(*parts, *reading(adapt))


def _domains(adapt: dict[str, Any]) -> Table:
    table = _table("Held-out prompts, drafts in turns, the trainer idle: tok/s and acceptance length")
    table.add_column("domain")
    measured = {**adapt["domains"], **({GENERAL: adapt["general"]} if adapt["general"] else {})}
    names = ["at a time", "static", "own", "final", "final / static", "own / static", "plain", "final / plain"]
    policy = any("policy_tok_s" in at for figures in measured.values() for at in figures["at"].values())
    for name in (*names, *["policy", "policy / plain"] * policy):
        table.add_column(name, justify="right")
    for name, figures in measured.items():
        for place, (concurrency, at) in enumerate(figures["at"].items()):
            table.add_row(
                "" if place else name,
                concurrency,
                _rate_and_length(at, "static"),
                _rate_and_length(at, "own"),
                _rate_and_length(at, "tide"),
                _spread(at, "ratio"),
                _spread(at, "own_ratio"),
                _form(at.get("plain_tok_s"), ".1f"),
                _spread(at, "tide_to_plain"),
                *[_rate_and_length(at, "policy"), _spread(at, "policy_to_plain")] * policy,
            )
    return table


def _phases(adapt: dict[str, Any]) -> Table:
    table = _table(
        "Traffic, last third of each phase: acceptance length and tok/s; tokens and seconds until 90 % of the gain"
    )
    table.add_column("phase")
    for name in ("static", "arm", "", "ratio", "gain", "tokens", "seconds", "back again after"):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for phase in adapt["phases"]:
        static = phase["arms"][STATIC]
        for place, (arm, live) in enumerate(phase["live"].items()):
            own, reached, again = phase["arms"][arm], live["to_90"], live["recovered"]
            visit = f" ({phase['visit'] + 1})" if phase["visit"] else ""
            table.add_row(
                "" if place else phase["name"] + visit,
                "" if place else f"{_form(static['late_tok_s'], '.1f')}  {_form(static['late_al'], '.2f')}",
                arm,
                f"{_form(own['late_tok_s'], '.1f')}  {_form(own['late_al'], '.2f')}",
                _form(live["late_ratio"], ".2f"),
                f"{live['gain']:+.2f}",
                _form(reached and reached["tokens"], ",.0f"),
                _form(reached and reached["seconds"], ",.0f"),
                f"{again['tokens']:,.0f} tokens" if again else "-",
            )
    return table


def reading(adapt: Mapping[str, Any]) -> Iterator[str]:
    """What the figures say, a sentence a line."""
    ratios = {name: figures["ratio"] for name, figures in adapt["domains"].items() if "ratio" in figures}
    if ratios:
        best, least = max(ratios, key=lambda n: ratios[n]), min(ratios, key=lambda n: ratios[n])
        yield (
            f"The final draft gives {ratios[best]:.2f} times the output of the static one on {best}, the best domain, "
            f"and {ratios[least]:.2f} times on {least}, the least."
        )
    first = adapt["first_domain"]
    if first and {"static_al", "tide_al"} <= first.keys():
        own = f", {first['own_al']:.2f} when its traffic ended" if "own_al" in first else ""
        yield (
            f"The first domain, {first['name']}: acceptance length {first['static_al']:.2f} with the static "
            f"draft{own}, {first['tide_al']:.2f} with the final one."
        )
    to_plain = [at["policy_to_plain"] for at in adapt["domains"].values() if "policy_to_plain" in at]
    if to_plain:
        yield (
            f"With the speculation policy and the draft that its arm has learned: {min(to_plain):.2f} to "
            f"{max(to_plain):.2f} times the output of decoding without a draft."
        )
    swaps = sum(event["kind"] == "swap" for event in adapt["events"])
    refused = sum(event["kind"] == "gate" and "not passed" in event["text"] for event in adapt["events"])
    yield f"During the traffic: {many(swaps, 'draft')} put into service, {many(refused, 'candidate')} refused."
    errors = sum(of["errors"] for phase in adapt["phases"] for of in phase["arms"].values())
    same = adapt["identical"]
    equal = f"{same['same']} of {same['requests']} answers were the same text in every arm"
    yield f"{many(errors, 'request')} failed; {equal}."
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
    return f"{at[f'{name}_tok_s']:.1f}  {_form(at[f'{name}_al'], '.2f')}"


def _spread(at: dict[str, Any], name: str) -> str:
    if name not in at:
        return "-"
    low, high = at[f"{name}_spread"]
    return f"{at[name]:.2f} ({low:.2f}–{high:.2f})"


def _form(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
