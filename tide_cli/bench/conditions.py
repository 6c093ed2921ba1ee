"""What two reports were taken under, and what of it was not the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# what makes two matrices comparable, and where it stands in a report; the first of two names that is there
_CONDITIONS = (
    ("target", "target"),
    ("target revision", "target_revision"),
    ("workload", "workload.sha256"),
    ("domains", "workload.domains"),
    ("loads", "loads"),
    ("rounds", "rounds"),
    ("requests of a pass", "requests"),
    ("seed", "seed"),
    *(
        (f"draft of {mode}", f"drafts.{mode}.sha256", f"drafts.{mode}.draft")
        for mode in ("static", "adapted", "policy")
    ),
    ("temperature", "temperature"),
    ("longest answer", "max_tokens"),
)
# the machine's, and where it stands in the environment
_MACHINE = (
    ("processor", "cpu"),
    ("cores", "cores"),
    ("GPUs", "gpus"),
    ("TIDE", "tide"),
    ("versions", "packages"),
)
_SAID = ("target", "dtype", "samples")  # by the figures of a bench themselves


def changed_conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What was not the same in both, in words. An option or a setting that one of them does not
    know says nothing."""
    old, new = _conditions(before), _conditions(after)
    pairs = [(words, old.get(words), new.get(words)) for words in old | new]
    for was, now in ((_options(before), _options(after)), (_settings(before), _settings(after))):
        pairs += [(words, was[words], now[words]) for words in was if words in now]
    machines = [_object(report.get("environment")) for report in (before, after)]
    return [*_changed(pairs), *changed_machine(*machines)]


def changed_machine(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is not the same in two environments (see `take_environment`), in words."""
    machines = [_machine(environment) for environment in (before, after)]
    return _changed((words, *(machine.get(name) for machine in machines)) for words, name in _MACHINE)


def _changed(pairs: Iterable[tuple[Any, ...]]) -> list[str]:
    return [f"{words}: {_brief(a)} before, {_brief(b)} after" for words, a, b in pairs if a != b]


def _conditions(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a matrix measured, by its name in words."""
    plans = [_object(_object(part).get("plan")) for part in report.values()]
    return {words: _find(plans, names) for words, *names in _CONDITIONS}


def _options(report: Mapping[str, Any]) -> dict[str, Any]:
    """What another bench was asked for and what it says itself that it measured, by its name in words."""
    parts = [_object(part) for part in report.values()]
    found: dict[str, Any] = {}
    for options in (_object(part.get(name)) for name in ("options", "conditions") for part in parts):
        found |= {_words(name): value for name, value in options.items() if name not in ("workload", "settings")}
    return found | {name: part[name] for part in parts for name in _SAID if isinstance(part.get(name), str)}


def _settings(report: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the engines, by their names in words."""
    found: dict[str, Any] = {}
    for part in map(_object, report.values()):
        for mode, settings in _object(_object(part.get("plan")).get("settings")).items():
            found |= {f"{name} of {mode}": value for name, value in _object(settings).items()}
        settings = _object(_object(part.get("options")).get("settings"))
        found |= {f"setting {name}": value for name, value in settings.items()}
    return found


def _machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Of its GPUs only what they are, not what they held then."""
    gpus = environment.get("gpus")
    if not isinstance(gpus, list):
        return {**environment}
    return {**environment, "gpus": [f"{_object(gpu).get('name')}, {_object(gpu).get('memory')} bytes" for gpu in gpus]}


def _object(value: Any) -> Mapping[str, Any]:
    """Empty for what is none: a report may come from anywhere."""
    return value if isinstance(value, dict) else {}


def _words(option: str) -> str:
    return option.removesuffix("_sha256").replace("_", " ")


def _find(places: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Any:
    """The first value of these dotted names that is there."""
    for name in names:
        for place in places:
            value: Any = place
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                return value
    return None


def _brief(value: Any) -> str:
    text = "nothing" if value in (None, [], {}) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
