"""Which versions of the draft an appliance keeps, and in what those differ. No torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tide_cli.adaptation.retention import Retention, retain
from tide_cli.drafts.history import FIGURE_KINDS, SERVING_KINDS, figures, served_before
from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.printable import many, size_words
from tide_cli.supervisor.journal import read_events, read_served
from tide_cli.supervisor.messages import Told
from tide_cli.training.record import parent_in_training, versions_to_replay

# versions that are in use just now, none of which may be removed; None: no version may be
InUse = Callable[[], Collection[int] | None]

_NEWEST = 200  # events of a kind that are asked how well versions did


def previously_served(paths: Paths) -> int | None:
    """The version served before the present one, from the events; None where there was none."""
    events = [event for kind in SERVING_KINDS for event in read_events(paths.database, kind=kind)]
    return served_before(sorted(events, key=lambda event: event["id"]), read_served(paths.database))


def known_figures(paths: Paths) -> dict[str, dict[int, float]]:
    """Condition to version to its acceptance length there, the newest condition first. TideError."""
    events = [event for kind in FIGURE_KINDS for event in read_events(paths.database, kind=kind, newest=_NEWEST)]
    return figures(sorted(events, key=lambda event: event["id"]))


def with_figures(command: Mapping[str, Any], paths: Paths) -> Mapping[str, Any]:
    """An order to the trainer to try kept versions, with what is known of each; any other as it is. TideError."""
    if command["cmd"] != "choose" or "among" in command:
        return command
    found: dict[str, dict[str, float]] = {}
    for condition, lengths in known_figures(paths).items():
        for version, length in lengths.items():
            found.setdefault(str(version), {})[condition] = length
    return {**command, "figures": found}


def retention(paths: Paths, keep: int, spare: Collection[int] = ()) -> Retention:
    """What stays of an appliance's versions where `keep` may. spare: others that are in use just now. TideError."""
    store = DraftStore(paths.drafts)
    served, marks, versions = read_served(paths.database), store.marks(), store.versions()
    try:
        parent = store.manifest(served).parent if served in versions else None
    except TideError as error:
        why = f"{error.lines()[0]}: it does not say which version is the way back from the served one"
        remedy = "`tide drafts use VERSION` serves another one"
        raise TideError("nothing was removed", why=why, remedy=remedy) from None
    in_training = parent_in_training(paths.training)
    needed: Mapping[int, str] = {
        **({} if in_training is None else {in_training: "in training"}),
        **dict.fromkeys(spare, "in use"),
        0: "the first",  # what the user began with: measurements compare with it
    }
    return retain(
        versions,
        keep,
        served=served,
        previous=previously_served(paths),
        parent=parent,
        pinned=marks.pinned,
        conditions=list(known_figures(paths).values()),
        bad=marks.bad,
        needed=needed,
        # uncounted: with traffic that returns they would be as many as may be kept
        beside=dict.fromkeys(versions_to_replay(paths.training), "needed by `tide train replay`"),
    )


def removals(paths: Paths, plan: Retention, in_use: InUse) -> Iterator[tuple[int, int]]:
    """Remove what the plan says, version by version: each, and its bytes, once it is gone. in_use is asked before each
    of them; what was put into service or pinned since the plan was made stays. TideError."""
    store = DraftStore(paths.drafts)
    for version in plan.remove:
        used = in_use()
        if used is None:
            return
        if version in {read_served(paths.database), *used, *store.marks().pinned}:
            continue
        size = store.size(version)
        store.remove(version)
        yield version, size


def mark_bad(paths: Paths, version: int, why: str) -> Told | None:
    """Mark a version that is taken back; may wait for others who change the store. Returns the event that tells of a
    failure."""
    try:
        DraftStore(paths.drafts).mark_bad(version, why)
    except TideError as error:
        return Told("mark_failed", f"{version_name(version)} is not marked bad: {'; '.join(error.lines())}")
    return None


def tidy(paths: Paths, keep: int, in_use: InUse) -> Told | None:
    """Remove what is too much. Returns the event that tells of it, None where nothing was; a failure is an event."""
    try:
        used = in_use()
        if used is None:
            return None
        plan = retention(paths, keep, used)
        removed = dict(removals(paths, plan, in_use))
    except TideError as error:
        return Told("tidy_failed", f"old versions of the draft were not removed: {'; '.join(error.lines())}")
    if not removed:
        return None
    names = ", ".join(map(version_name, removed))
    kept = {version_name(version): why for version, why in sorted(plan.keep.items())}
    size_of_all = size_words(sum(removed.values()))
    text = f"{names} removed ({size_of_all}): {many(len(kept), 'version')} stay, keep_drafts is {keep}"
    return Told("tidied", text, {"removed": list(removed), "kept": kept, "keep_drafts": keep})
