"""The report of `tide bench adapt`, from its records alone; a half done one reports what there is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tide_cli.bench.adapt_clock import Session, interruptions, without
from tide_cli.bench.adapt_events import told
from tide_cli.bench.adapt_figures import (
    Measured,
    Pass,
    domain_figures,
    identical,
    series,
)
from tide_cli.bench.adapt_phases import phase_figures
from tide_cli.bench.shift import GENERAL


def adapt_figures(
    options: Mapping[str, Any],
    phases: Sequence[str],
    arms: Sequence[str],
    entries: Mapping[str, Sequence[Mapping[str, Any]]],
    events: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """entries: kind -> records as `tide_cli.bench.adapt` writes them; events: rows of TIDE's journal, all of its life.
    Interruptions are no part of any time.

    {finished, domains (see `domain_figures`), general: the same for prompts of the general traffic, first_domain,
    phases (see `phase_figures`), series (see `series`), events: those of TIDE's arm, see `told`,
    identical: {requests, same}, changed_conditions: of the machine at an interruption, in words, reasons: why requests
    failed, static: {version, captured_tokens, last_gate, requests, errors}, final: {ARM: version}, options}.
    """
    alone = options.get("concurrency")
    before = {"concurrency": alone} if isinstance(alone, int) else {}  # of passes that are older than lists of them
    made = [Pass(**{**before, **entry, "texts": tuple(entry["texts"])}) for entry in entries.get("pass", ())]
    gaps = interruptions(made, [Session(**entry) for entry in entries.get("session", ())])
    passes = [replace(one, begun=without(one.begun, gaps)) for one in made]
    domains = domain_figures([Measured(**entry) for entry in entries.get("measured", ())])
    kept = domains.pop(GENERAL, None)
    general = entries.get("general_pass", ())
    static = dict(entries["static"][0]) if entries.get("static") else {}
    return {
        "finished": bool(entries.get("finished")),
        "domains": domains,
        "general": kept,
        "first_domain": _first_domain(phases, domains),
        "phases": phase_figures(passes, phases, arms),
        "series": series(passes, phases, arms),
        "events": told([{**event, "time": without(event["time"], gaps)} for event in events], passes),
        "identical": identical(passes, arms),
        "changed_conditions": list(
            dict.fromkeys(one for entry in entries.get("machine", ()) for one in entry["changed"])
        ),
        "reasons": _reasons(entries),
        "static": {**static, **{name: sum(entry[name] for entry in general) for name in ("requests", "errors")}},
        "final": dict(entries["final"][0]["versions"]) if entries.get("final") else {},
        "options": dict(options),
    }


def _reasons(entries: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Why requests failed, each reason once, five at most; records that are older than reasons have none."""
    sent = [entry for kind in ("general_pass", "pass", "measured") for entry in entries.get(kind, ())]
    return sorted({reason for entry in sent for reason in entry.get("reasons", ())})[:5]


def _first_domain(phases: Sequence[str], domains: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """What became of the domain that the traffic left first: with its own draft, and with the last one."""
    if not phases or phases[0] not in domains:
        return None
    figures = domains[phases[0]]
    names = ("static_al", "own_al", "tide_al", "own_ratio", "ratio")
    return {"name": phases[0]} | {name: figures[name] for name in names if name in figures}
