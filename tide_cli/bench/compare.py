"""Two reports side by side: every figure that both have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.bench.guards import Finding, Guard
from tide_cli.errors import UsageError, reason
from tide_cli.json_files import json_object

# what makes two measurements comparable, and where it stands in a report
_CONDITIONS = (
    ("target", "target"),
    ("target revision", "target_revision"),
    ("workload", "workload.sha256"),
    ("requests of a pass", "requests"),
    ("temperature", "temperature"),
    ("longest answer", "max_tokens"),
    ("processor", "cpu"),
    ("cores", "cores"),
    ("GPUs", "gpus"),
    ("versions", "packages"),
)
_LABELS = ("mode", "domain", "hidden_size", "to")  # what tells entries of a list apart
_SKIPPED = {
    *("environment", "plan", "guards", "intervals", "spread", "by_domain", "by_prompt_tokens", "by_output_tokens"),
    *("ratios", "concurrency", "rate", "rounds", "requests", "rounds_by_steps"),  # not measured, or said by the cells
}


@dataclass(frozen=True)
class Difference:
    """One figure of both reports. where: empty for a figure of the whole measurement."""

    where: str
    figure: str
    before: float
    after: float

    @property
    def ratio(self) -> float | None:
        """After / before; None by zero."""
        return self.after / self.before if self.before else None


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The figures that both reports have under the same name and place, in the order of the second."""
    old = dict(_figures(before))
    return [Difference(*key, old[key], value) for key, value in _figures(after) if key in old]


def read_report(path: Path) -> dict[str, Any]:
    """What a bench printed with --json. UsageError where it is none."""
    try:
        report = json_object(path.read_text())
    except (OSError, ValueError) as error:
        remedy = "give two files that `tide bench … --json` or --results has written"
        raise UsageError(f"cannot read {path}", why=reason(error), remedy=remedy) from None
    if not isinstance(report.get("environment"), dict):
        raise UsageError(f"{path} is no report of a bench", remedy="`tide bench … --json > FILE` writes one")
    return report


def judge_differences(guards: Iterable[Guard], differences: Sequence[Difference]) -> list[Finding]:
    """Every guard at every figure of its name. UsageError for one that meets none."""
    found = []
    for guard in guards:
        own = [
            one
            for one in differences
            if one.figure == guard.figure and (guard.mode is None or one.where.split(" ")[0] == guard.mode)
        ]
        if not own or guard.to is not None:
            raise UsageError(
                f"--guard {guard.text!r} speaks of no figure that both reports have",
                why=f"they have {', '.join(dict.fromkeys(one.figure for one in differences))}",
            )
        for one in own:
            value = one.ratio if guard.ratio else one.after
            found.append(
                Finding(guard.text, one.where or "the report", value, value is not None and guard.holds(value))
            )
    return found


def changed_conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What was not the same in both, in words."""
    found = []
    for words, name in _CONDITIONS:
        values = [_find(report, name) for report in (before, after)]
        if values[0] != values[1]:
            found.append(f"{words}: {_brief(values[0])} before, {_brief(values[1])} after")
    return found


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    """((where, figure), value) of every number but those of the conditions."""
    yield from _walk(report, "")


def _walk(value: Any, where: str) -> Iterator[tuple[tuple[str, str], float]]:
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict):
                yield from _walk(entry, " ".join(filter(None, (where, _label(entry)))))
        return
    for name, inner in value.items():
        if name in _SKIPPED or name in _LABELS:
            continue
        if isinstance(inner, bool) or inner is None:
            continue
        if isinstance(inner, int | float):
            yield (where, name), float(inner)
        elif isinstance(inner, dict) and isinstance(inner.get("median"), int | float):
            yield (where, f"{name} ratio"), float(inner["median"])
        elif isinstance(inner, dict | list):
            yield from _walk(inner, where)


def _label(entry: Mapping[str, Any]) -> str:
    if "where" in entry:
        return f"{entry['where']} against {entry['to']}" if "to" in entry else str(entry["where"])
    return " ".join(f"{name} {entry[name]}" for name in _LABELS if name in entry)


def _find(report: Mapping[str, Any], name: str) -> Any:
    """The first value of that dotted name, looked for in the environment and in the plans of the measurements."""
    plans = [part.get("plan", {}) for part in report.values() if isinstance(part, dict)]
    for place in (report.get("environment", {}), *plans):
        value: Any = place
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _brief(value: Any) -> str:
    text = "nothing" if value in (None, [], {}) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
