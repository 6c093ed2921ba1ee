"""Two reports side by side: every figure that the first one has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.bench.guards import Finding, Guard, finding
from tide_cli.bench.matrix_figures import BEST_OF
from tide_cli.errors import UsageError, reason
from tide_cli.json_files import json_object
from tide_cli.regular_files import read_named

_AGAINST = " against "
_LABELS = (
    "name",
    "visit",
    "mode",
    "domain",
    "hidden_size",
    "batch",
    "steps",
    "to",
)  # what tells entries of a list apart
_SKIPPED = {  # conditions, what the cells say too, and what led to the figures
    *("environment", "plan", "options", "conditions", "guards", "concurrency", "rate", "rounds", "requests"),
    *("rounds_by_steps", "intervals", "spread", "by_domain", "by_prompt_tokens", "by_output_tokens"),
    *("series", "events", "final", "version"),
}
_UNSAID = ("cells", "ratios", "arms", "live", "by_hidden_size")  # names whose entries' own say enough


@dataclass(frozen=True)
class Difference:
    """One figure of the first report. where: empty for a figure of the whole measurement; after: None where the second
    report lacks it; failed: requests there that failed in the second one, of which no other figure speaks."""

    where: str
    figure: str
    before: float
    after: float | None
    failed: float = 0

    @property
    def ratio(self) -> float | None:
        """After / before: 1 for two zeros, infinite where only the first one is zero; None without the second figure.

        A guard that allows twice as many errors allows none where there were none.
        """
        if self.after is None:
            return None
        if self.before:
            return self.after / self.before
        return 1.0 if not self.after else math.copysign(math.inf, self.after)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The figures of the first report, with those that the second one has under the same name and place.

    UsageError for a report with two figures of one name at one place.
    """
    old, new = _figures(before), _figures(after, turned=True)

    def failed(place: str) -> float:
        return new.get((place, "errors")) or 0

    return [
        Difference(where, figure, value, new.get((where, figure)), sum(map(failed, {where, *_compared(where)})))
        for (where, figure), value in old.items()
    ]


def read_report(path: Path) -> dict[str, Any]:
    """What a bench printed with --json. UsageError where it is none."""
    try:
        report = json_object(read_named(path))
    except (OSError, ValueError) as error:
        remedy = "give two files that `tide bench … --json > FILE` has written"
        raise UsageError(f"cannot read {path}", why=reason(error), remedy=remedy) from None
    if not isinstance(report.get("environment"), dict):
        raise UsageError(f"{path} is no report of a bench", remedy="`tide bench … --json > FILE` writes one")
    return report


def judge_differences(guards: Sequence[Guard], differences: Sequence[Difference]) -> list[Finding]:
    """Every guard at every figure of its name. UsageError for one that meets none."""
    found = []
    for guard in guards:
        named = [one for one in differences if one.figure in guard.names]
        own = [one for one in named if _speaks_of(guard, one)]
        if not own or guard.to is not None:
            raise _unspoken(guard, named, differences)
        for one in own:
            allowed = any(other.allows(one.failed) for other in guards if _speaks_of(other, one))
            failed = f"{one.failed:g} requests failed" if one.failed and not allowed else ""
            value = _multiple(guard, one) if guard.ratio else one.after
            found.append(finding(guard, one.where or "the report", value, failed))
    return found


def _unspoken(guard: Guard, named: Sequence[Difference], differences: Sequence[Difference]) -> UsageError:
    """Why it speaks of nothing. named: the differences of its figure, anywhere."""
    refused = f"--guard {guard.text!r} speaks of no figure of the first report"
    if guard.to is not None:
        ratio = f"{guard.mode or 'MODE'}:{guard.figure}_ratio"
        return UsageError(refused, why=f"the ratio of two modes is {ratio}", remedy=f"'{ratio}>=0.98x' bounds B / A")
    if named:
        places = dict.fromkeys(one.where or "the report" for one in named)
        return UsageError(refused, why=f"it has {guard.figure} of {', '.join(places)}")
    return UsageError(refused, why=f"it has {', '.join(dict.fromkeys(one.figure for one in differences))}")


def unfinished(report: Mapping[str, Any]) -> bool:
    """Whether its measurement was not over when it was written."""
    return any(isinstance(part, dict) and part.get("finished") is False for part in report.values())


def _multiple(guard: Guard, one: Difference) -> float | None:
    """The ratio. 0 is any multiple of 0, so that of two zeros it is one that the guard is met by, if there is one."""
    if one.before == one.after == 0 and not guard.holds(1.0):
        return guard.bound
    return one.ratio


def _speaks_of(guard: Guard, one: Difference) -> bool:
    """A ratio of two modes is the first one's."""
    return guard.mode is None or guard.mode in one.where.partition(_AGAINST)[0].split()


def _figures(report: Mapping[str, Any], *, turned: bool = False) -> dict[tuple[str, str], float]:
    """(where, figure) -> value of every number but those of the conditions. UsageError for two at one place.

    turned: with the ratios that turn another one round, too.
    """
    found: dict[tuple[str, str], float] = {}
    for name, part in report.items():
        if name in _SKIPPED or not isinstance(part, dict | list):
            continue
        for key, value in _walk(part, "", turned):
            if key in found:
                raise UsageError(f"a report has two figures {key[1]} of {key[0] or 'the measurement'}")
            found[key] = value
    return found


def _walk(value: Any, where: str, turned: bool) -> Iterator[tuple[tuple[str, str], float]]:
    if isinstance(value, list):
        for entry in value if turned else _one_way(value):
            if isinstance(entry, dict):
                figures = {name: inner for name, inner in entry.items() if name not in _LABELS}
                yield from _walk(figures, _joined(where, _label(entry)), turned)
        return
    for name, inner in value.items():
        if name in _SKIPPED or isinstance(inner, bool) or inner is None:
            continue
        if name == "errors" and isinstance(inner, dict):
            continue  # of a ratio: the cells say them
        if isinstance(inner, int | float):
            yield (where, name), float(inner)
        elif isinstance(inner, dict) and isinstance(inner.get("median"), int | float):
            yield (where, f"{name}_ratio"), float(inner["median"])
        elif isinstance(inner, dict | list):
            yield from _walk(inner, where if name in _UNSAID else _joined(where, name), turned)


def _one_way(entries: Iterable[Any]) -> Iterator[Any]:
    """Without the ratios that turn an earlier one round."""
    seen: set[tuple[str, ...]] = set()
    for entry in entries:
        if not isinstance(entry, dict) or "to" not in entry:
            yield entry
            continue
        mode, to, *load = (str(entry.get(name)) for name in ("mode", "to", "concurrency", "rate"))
        if (to, mode, *load) not in seen:
            yield entry
        seen.add((mode, to, *load))


def _compared(where: str) -> list[str]:
    """The cells that a ratio of modes is of; none for another place."""
    cell, against, to = where.partition(_AGAINST)
    load = cell.partition(" at ")[2]
    return [cell, *(f"{mode} at {load}" for mode in (BEST_OF if to == "best" else (to,)))] if against else []


def _joined(*names: str) -> str:
    return " ".join(filter(None, names))


def _label(entry: Mapping[str, Any]) -> str:
    if "where" in entry:
        return f"{entry['where']}{_AGAINST}{entry['to']}" if "to" in entry else str(entry["where"])
    return " ".join(f"{name} {entry[name]}" for name in _LABELS if name in entry)
