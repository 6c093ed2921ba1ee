"""A version that has passed the gate and was never served: the appliance ended in between, or a swap has failed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tide_cli.drafts.history import SERVING_KINDS
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError
from tide_cli.supervisor.journal import read_events
from tide_cli.supervisor.messages import Passed
from tide_cli.supervisor.serving import ATTEMPTS


def find_unserved(store: DraftStore, database: Path, served: int | None) -> Passed | None:
    """The newest version that was trained from the served one and has passed the gate, unless it was served before, is
    marked bad, all attempts at it have failed, or the user has chosen a version since it was made. None for none, or
    where that cannot be read."""
    if served is None:
        return None
    try:
        bad = store.marks().bad
        chosen = read_events(database, newest=1, kind="use")
        had = [event["data"].get("version") for kind in SERVING_KINDS for event in read_events(database, kind=kind)]
        refused = read_events(database, kind="swap_refused")
        newer = [version for version in store.versions() if version > served and version not in bad]
    except TideError:
        return None
    for version in reversed(newer):
        with suppress(TideError):
            manifest = store.manifest(version)
            if manifest.parent == served and manifest.gate:
                wanted = version not in had and not (chosen and chosen[0]["time"] >= manifest.created)
                refusals = sum(event["data"].get("version") == version for event in refused)
                return Passed(version, manifest.gate, refusals) if wanted and refusals < ATTEMPTS else None
    return None
