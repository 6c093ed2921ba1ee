"""Guards of a shift experiment: bounds on what its last comparison found, domain by domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tide_cli.bench.adapt_figures import PLAIN, POLICY, STATIC, TIDE
from tide_cli.bench.adapt_options import AdaptOptions
from tide_cli.bench.guards import Finding, Guard, check_guards, judge
from tide_cli.bench.shift import GENERAL
from tide_cli.errors import UsageError

_GENERAL = "general"  # as reports call it, and a guard can: a name with a space is none
ADAPT_GUARDS = "'ratio>=1.1', 'code:tide_to_plain>=1' or 'errors<=0'"


def check_adapt_guards(guards: Sequence[Guard], options: AdaptOptions) -> None:
    """Refuses guards that an experiment with these options cannot answer. UsageError."""
    everything = replace(options, with_policy=True, plain=True)
    for guard in guards:
        if guard.ratio:
            raise UsageError(
                f"--guard {guard.text!r}: a figure here is compared under a name of its own",
                remedy="'ratio>=1.1' bounds the last draft over the static one, 'tide_to_plain>=1' over plain decoding",
            )
        if guard.figure in _figures(everything) and guard.figure not in _figures(options):
            lacks_policy = guard.figure not in _figures(replace(everything, with_policy=options.with_policy))
            why = "--with-policy measures it" if lacks_policy else "--no-plain leaves it out"
            raise UsageError(f"--guard {guard.text!r}: {guard.figure} is not measured", why=why)
    domains = [*dict.fromkeys(options.order), *([_GENERAL] if options.general else [])]
    check_guards(guards, domains, _figures(options), ())


def judge_adapt(guards: Sequence[Guard], adapt: Mapping[str, Any]) -> list[Finding]:
    """Every guard at every domain it speaks of and every concurrency there. adapt: of `adapt_figures`."""
    domains = [*((name, name, of) for name, of in adapt["domains"].items()), (_GENERAL, GENERAL, adapt.get("general"))]
    cells = [
        {"mode": name, "where": f"{words}, {concurrency} at a time", **figures}
        for name, words, of in domains
        if of
        for concurrency, figures in of["at"].items()
    ]
    return judge(guards, cells, ())


def failures(adapt: Mapping[str, Any]) -> list[str]:
    """Why an experiment failed whatever its figures are, in sentences: where there is nothing to compare, and where no
    request of the traffic was answered."""
    domains = {**adapt["domains"], GENERAL: adapt.get("general")}
    why = f": {'; '.join(adapt['reasons'])}" if adapt.get("reasons") else ""
    traffic = [("general traffic", adapt["static"])] + [
        (f"the phase {phase['name']} by {arm}", counts)
        for phase in adapt["phases"]
        for arm, counts in phase["arms"].items()
    ]
    unanswered = [
        f"none of {counts['requests']} requests of {of} was answered{why}"
        for of, counts in traffic
        if counts.get("requests") and counts["requests"] == counts["errors"]
    ]
    return unanswered + [
        f"{name}, {concurrency} at a time, has no round without failed requests{why}"
        for name, of in domains.items()
        if of
        for concurrency, figures in of["at"].items()
        if not figures["rounds"]
    ]


def _figures(options: AdaptOptions) -> list[str]:
    """Those that every domain has; a draft of its own has only one whose phase did not end with the last draft."""
    drafts = [STATIC, TIDE, *[POLICY] * options.with_policy]
    found = ["errors", "ratio", *(f"{name}_al" for name in drafts), *(f"{name}_tok_s" for name in drafts)]
    if options.with_policy:
        found += ["policy_ratio", "policy_to_tide"]
    if options.plain:
        found += [f"{PLAIN}_tok_s", *(f"{name}_to_plain" for name in drafts)]
    return found
