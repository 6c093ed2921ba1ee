"""Two reports side by side: every figure that the first one has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.bench.guards import Finding, Guard, finding
from tide_cli.errors import UsageError, reason
from tide_cli.json_files import json_object

# what makes two measurements comparable, and where it stands in a report; the first of two names that is there
_CONDITIONS = (
    ("target", "target"),
    ("target revision", "target_revision"),
    ("workload", "workload.sha256"),
    ("domains", "workload.domains"),
    ("loads", "loads"),
    ("rounds", "rounds"),
    ("requests of a pass", "requests"),
    ("seed", "seed"),
    ("order", "order"),
    ("dtype", "settings.dtype"),
    ("speculation", "settings.speculation"),
    *(
        (f"draft of {mode}", f"drafts.{mode}.sha256", f"drafts.{mode}.draft")
        for mode in ("static", "adapted", "policy")
    ),
    ("temperature", "temperature"),
    ("longest answer", "max_tokens"),
    ("processor", "cpu"),
    ("cores", "cores"),
    ("GPUs", "gpus"),
    ("TIDE", "tide"),
    ("versions", "packages"),
)
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
    *("environment", "plan", "options", "guards", "concurrency", "rate", "rounds", "requests", "rounds_by_steps"),
    *("intervals", "spread", "by_domain", "by_prompt_tokens", "by_output_tokens", "ratios"),
    *("series", "events", "final", "version"),
}
_UNSAID = ("cells", "arms", "live")  # names whose entries' own say enough


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
        """After / before; None by zero, and without the second figure."""
        return self.after / self.before if self.before and self.after is not None else None


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The figures of the first report, with those that the second one has under the same name and place.

    UsageError for a report with two figures of one name at one place.
    """
    old, new = _figures(before), _figures(after)
    return [
        Difference(where, figure, value, new.get((where, figure)), new.get((where, "errors")) or 0)
        for (where, figure), value in old.items()
    ]


def read_report(path: Path) -> dict[str, Any]:
    """What a bench printed with --json. UsageError where it is none."""
    try:
        report = json_object(path.read_text())
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
        own = [one for one in differences if one.figure in guard.names and _speaks_of(guard, one)]
        if not own or guard.to is not None:
            raise UsageError(
                f"--guard {guard.text!r} speaks of no figure of the first report",
                why=f"it has {', '.join(dict.fromkeys(one.figure for one in differences))}",
            )
        for one in own:
            allowed = any(other.allows(one.failed) for other in guards if _speaks_of(other, one))
            failed = f"{one.failed:g} requests failed" if one.failed and not allowed else ""
            value = one.ratio if guard.ratio else one.after
            found.append(finding(guard, one.where or "the report", value, failed))
    return found


def _speaks_of(guard: Guard, one: Difference) -> bool:
    return guard.mode is None or guard.mode in one.where.split()


def changed_conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What was not the same in both, in words."""
    reports = (before, after)
    pairs = [(words, *(_find(report, names) for report in reports)) for words, *names in _CONDITIONS]
    old, new = (_by_mode(report) for report in reports)
    pairs += [
        (f"{name} of {mode}", old[mode].get(name), new[mode].get(name))
        for mode in old
        if mode in new
        for name in old[mode] | new[mode]
    ]
    return [f"{words}: {_brief(a)} before, {_brief(b)} after" for words, a, b in pairs if a != b]


def _figures(report: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """(where, figure) -> value of every number but those of the conditions. UsageError for two at one place."""
    found: dict[tuple[str, str], float] = {}
    for name, part in report.items():
        if name in _SKIPPED or not isinstance(part, dict | list):
            continue
        for key, value in _walk(part, ""):
            if key in found:
                raise UsageError(f"a report has two figures {key[1]} of {key[0] or 'the measurement'}")
            found[key] = value
    return found


def _walk(value: Any, where: str) -> Iterator[tuple[tuple[str, str], float]]:
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict):
                figures = {name: inner for name, inner in entry.items() if name not in _LABELS}
                yield from _walk(figures, _joined(where, _label(entry)))
        return
    for name, inner in value.items():
        if name in _SKIPPED or isinstance(inner, bool) or inner is None:
            continue
        if isinstance(inner, int | float):
            yield (where, name), float(inner)
        elif isinstance(inner, dict) and isinstance(inner.get("median"), int | float):
            yield (where, f"{name} ratio"), float(inner["median"])
        elif isinstance(inner, dict | list):
            yield from _walk(inner, where if name in _UNSAID else _joined(where, name))


def _joined(*names: str) -> str:
    return " ".join(filter(None, names))


def _label(entry: Mapping[str, Any]) -> str:
    if "where" in entry:
        return f"{entry['where']} against {entry['to']}" if "to" in entry else str(entry["where"])
    return " ".join(f"{name} {entry[name]}" for name in _LABELS if name in entry)


def _by_mode(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """mode -> its settings; empty for a report that has none by mode."""
    found = _find(report, ["settings"]) or {}
    return {mode: settings for mode, settings in found.items() if isinstance(settings, dict)}


def _find(report: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first value of these dotted names, looked for in the environment and in the plans of the measurements."""
    plans = [part.get("plan") or part.get("options") for part in report.values() if isinstance(part, dict)]
    for name in names:
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
