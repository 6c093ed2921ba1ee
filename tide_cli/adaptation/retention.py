"""Which published versions are kept when their number is bounded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """keep: version to the reason it stays; remove: the versions that may go, ascending."""

    keep: Mapping[int, str]
    remove: tuple[int, ...]


def retain(
    versions: Collection[int],
    limit: int,
    *,
    served: int | None,
    previous: int | None = None,
    parent: int | None = None,
    pinned: Collection[int] = (),
    conditions: Sequence[Mapping[int, float]] = (),
    bad: Collection[int] = (),
    needed: Mapping[int, str] | None = None,
    beside: Mapping[int, str] | None = None,
) -> Retention:
    """Which of the versions stay: at most `limit`, except that some do whatever the limit is.

    Those are: the served one, the one served `previous` to it and its `parent` (both are ways back), pinned ones,
    the newest (its number must not be given to another draft), and what is `needed`, for the reason given. Then, while
    there is room, the best version of each recent condition, newest condition first, and then the newest ones; never
    bad ones. What stays `beside` these, for the reason given, takes no room from them.
    conditions: for each, version to its acceptance length there.
    """
    keep: dict[int, str] = {}
    must = [(served, "served"), (previous, "served before"), (parent, "parent of the served one")]
    must += [(version, "pinned") for version in sorted(pinned)]
    must.append((max(versions, default=None), "newest"))
    must += sorted((needed or {}).items())
    for version, why in must:
        if version is not None and version in versions:
            keep.setdefault(version, why)
    wanted = []
    for lengths in conditions:
        known = {version: al for version, al in lengths.items() if version in versions and version not in bad}
        if known:
            wanted.append((max(known, key=lambda v: (known[v], v)), "best on recent traffic"))
    wanted += [(version, "recent") for version in sorted(versions, reverse=True) if version not in bad]
    for version, why in wanted:
        if len(keep) < limit:
            keep.setdefault(version, why)
    for version, why in sorted((beside or {}).items()):
        if version in versions:
            keep.setdefault(version, why)
    return Retention(keep, tuple(sorted(set(versions) - keep.keys())))
