"""What was served when, and how well, from the rows of the events table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

SERVING_KINDS = ("swap", "ready")  # kinds of events that tell which version the engine has: what was asked for is none

FIGURE_KINDS = ("swap", "trusted", "rollback", "drift", "pool")  # that have acceptance lengths of versions
_LEAST_REQUESTS = 8  # whose acceptance length says something of a version


def served_before(events: Sequence[Mapping[str, Any]], served: int | None) -> int | None:
    """The version that was last served and is not `served`, the present one or the one wished for; None without one.

    events: in order of time, of which SERVING_KINDS count. Each holds the version that the engine has from then on as
    `version` in its data, a swap also the one it replaced as `before`.
    """
    for event in reversed([event for event in events if event["kind"] in SERVING_KINDS]):
        for name in ("version", "before"):
            version = event["data"].get(name)
            if isinstance(version, int) and version != served:
                return version
    return None


def figures(events: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Condition to version to its acceptance length there, the condition of the newest event first.

    events: in order of time; one that another version of this program has written otherwise is passed over. A condition
    is a label that clients gave, with the live figures that a version had come to when it was replaced or judged, or
    the samples on which versions were compared after a drift.
    """
    found: dict[str, dict[int, float]] = {}
    for event in events:
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            for condition, lengths in _news(event).items():
                found[condition] = found.pop(condition, {}) | lengths
    return dict(reversed(found.items()))


def _news(event: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """What one event says, as `figures` has it."""
    data = event["data"]
    # a swap tells of the version that leaves, a verdict of the one it is about
    version = data.get("before") if event["kind"] == "swap" else data.get("version")
    news = {
        f"requests of {label}": {version: float(one["acceptance_length"])}
        for label, one in (data.get("domains") or {}).items()
        if isinstance(version, int) and one["requests"] >= _LEAST_REQUESTS
    }
    if event["kind"] == "pool" and (walked := data.get("walked")):
        lengths = {int(data["served"]): float(walked[0]["served_al"])}
        lengths |= {int(one["version"]): float(one["candidate_al"]) for one in walked}
        news[f"samples of event {event['id']}"] = lengths
    return news
