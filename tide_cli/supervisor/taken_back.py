"""A version that was to be taken back and has not left: the appliance ended in between, or the swap back has failed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tide_cli.supervisor.journal import read_events, read_served


@dataclass(frozen=True)
class TakenBack:
    """previous: the version that was to return; reason: why, in words."""

    version: int
    previous: int
    reason: str


def find_taken_back(database: Path) -> TakenBack | None:
    """The rollback of the version that was served last. None for none, or where since then another version was swapped
    in, the user has chosen that one, or it has earned its trust after all. TideError where the journal cannot be
    read."""
    rollbacks = read_events(database, newest=1, kind="rollback")
    if not rollbacks:
        return None
    event, served = rollbacks[0], read_served(database)
    previous = event["data"].get("previous")
    if served is None or event["data"].get("version") != served or not isinstance(previous, int):
        return None
    later = {kind: read_events(database, after=event["id"], kind=kind) for kind in ("swap", "use", "trusted")}
    stays = [one["data"].get("version") for one in (*later["use"], *later["trusted"])]
    if later["swap"] or served in stays:
        return None
    return TakenBack(served, previous, event["text"])
