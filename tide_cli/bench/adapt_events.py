"""What TIDE decided during the traffic of a shift experiment, and when. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tide_cli.bench.adapt_figures import TIDE, Pass

_TOLD = ("cycle", "gate", "swap", "drift", "pool", "doubt", "rollback", "trusted", "trainer_error")


def told(events: Sequence[Mapping[str, Any]], passes: Sequence[Pass]) -> list[dict[str, Any]]:
    """Events since the first piece began; none after the traffic. events: rows of the journal of TIDE's arm.

    {wall_s: since the first piece began, seconds: that TIDE's arm had been answering by then, tokens: of the pieces
    that it had answered, kind, text}; of a swap also {version: the one that came into service, back: whether it came
    back because its successor was taken back}. The first draft that is served on request ends the traffic: that is how
    the comparison at the end begins.
    """
    own = [one for one in passes if one.arm == TIDE]
    begun = min((one.begun for one in passes), default=None)
    if begun is None:
        return []
    found: list[dict[str, Any]] = []
    returning = None
    for event in events:
        now, kind = event["time"], event["kind"]
        if now < begun:
            continue
        if kind == "use":
            break
        if kind == "rollback":
            returning = event["data"].get("previous")
        if kind in _TOLD:
            tokens = sum(one.tokens for one in own if one.begun + one.seconds <= now)
            seconds = sum(min(max(now - one.begun, 0.0), one.seconds) for one in own)
            moment = {"wall_s": now - begun, "seconds": seconds, "tokens": tokens}
            found.append({**moment, "kind": kind, "text": event["text"]})
        if kind == "swap":
            version = event["data"].get("version")
            back = version is not None and version == returning
            returning = None if back else returning
            found[-1] |= {"version": version, "back": back}
    return found
