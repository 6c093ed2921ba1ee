"""On drift: whether a version that was kept suits the present traffic better than the served one.

Reading a version and walking it over the newest samples takes seconds, so the ones most different from the served
draft and from each other come first, and no further one is begun once the time for it is over. The best that passes the
gate's rule is put into service at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import nextafter
from typing import Any

from tide_cli.adaptation.gate import GateDecision, Walk, decide

_FEWEST = 4  # kept versions that are walked however long it takes
_MOST_SECONDS = 10.0  # after which no further one is begun
MOST_WALKED = 64  # kept versions, however little time each takes


@dataclass(frozen=True)
class Kept:
    """What is known of a version without reading its weights.

    parent: the version its training started from; al: acceptance length by domain or condition, as gates measured it.
    """

    version: int
    parent: int | None
    al: Mapping[str, float]


def walked_enough(walked: int, seconds: float) -> bool:
    """Whether no further kept version is begun, after so many in so many seconds, reading included."""
    return walked >= _FEWEST and seconds >= _MOST_SECONDS


@dataclass(frozen=True)
class WalkOrder:
    """versions: to be walked, in this order; reason: in words."""

    versions: tuple[int, ...]
    reason: str


def walk_order(kept: Sequence[Kept], served: int, limit: int, bad: Collection[int] = ()) -> WalkOrder:
    """At most `limit` versions, each the one most different from the served one and from those before it.

    Bad versions are left out. Of equally different ones the newer comes first. ValueError where `served` is not among
    `kept`.
    """
    known = {version.version: version for version in kept}
    if served not in known:
        raise ValueError(f"v{served:04d} is not among the kept versions")
    left = {version for version in known if version != served and version not in bad}
    candidates, chosen = len(left), [served]
    while left and len(chosen) <= limit:
        # the served one and those chosen are what a further one has to differ from
        distance = {v: min(_difference(known, v, other) for other in chosen) for v in left}
        chosen.append(max(left, key=lambda v: (distance[v], v)))
        left.remove(chosen[-1])
    names = ", ".join(f"v{version:04d}" for version in chosen[1:]) or "none"
    return WalkOrder(tuple(chosen[1:]), f"{names} of {candidates} kept versions, the most different first")


def _difference(known: Mapping[int, Kept], one: int, other: int) -> tuple[float, int]:
    """First by acceptance length, averaged over what both were measured on (0 if nothing); then by steps of descent."""
    left, right = known[one].al, known[other].al
    shared = left.keys() & right.keys()
    by_length = sum(abs(left[name] - right[name]) for name in shared) / len(shared) if shared else 0.0
    up, down = _descent(known, one), _descent(known, other)
    common = min((up[v] + down[v] for v in up.keys() & down.keys()), default=len(up) + len(down))
    return by_length, common


def _descent(known: Mapping[int, Kept], version: int) -> dict[int, int]:
    """A version and its ancestors, as far as they are known, each with the steps up to it."""
    steps: dict[int, int] = {}
    at: int | None = version
    while at is not None and at not in steps:
        steps[at] = len(steps)
        at = known[at].parent if at in known else None
    return steps


@dataclass(frozen=True)
class PoolDecision:
    """version: to be served from now on, None where the served one stays; gates: the verdict on each version walked."""

    version: int | None
    gates: Mapping[int, GateDecision]
    reason: str


def choose_version(
    walked: Mapping[int, Sequence[Walk]],
    served: Sequence[Walk],
    *,
    confidence: float,
    old_walked: Mapping[int, Sequence[Walk]] | None = None,
    old_served: Sequence[Walk] = (),
    **rules: Any,
) -> PoolDecision:
    """The version with the highest lower bound of gain among those that pass the gate; walks and `rules` as there.

    The gate's error is shared among the versions, so that looking at many does not make a wrong one likelier.
    """
    # never 1 itself, to which a share of the smallest error is rounded: no bound has that confidence
    share = min(1 - (1 - confidence) / max(1, len(walked)), nextafter(1.0, 0.0))
    gates = {
        version: decide(
            walks,
            served,
            confidence=share,
            old_candidate=old_walked[version] if old_walked else (),
            old_served=old_served if old_walked else (),
            **rules,
        )
        for version, walks in walked.items()
    }
    passed = {version: gate.lower_bound for version, gate in gates.items() if gate.passed and gate.lower_bound}
    if not passed:
        return PoolDecision(None, gates, f"none of {len(gates)} kept versions passed the gate")
    version = max(passed, key=lambda v: (passed[v], v))
    return PoolDecision(version, gates, f"v{version:04d}: {gates[version].reason}")
