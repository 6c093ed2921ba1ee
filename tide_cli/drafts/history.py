"""What was served when, from the rows of the events table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SERVING_KINDS = ("swap", "use")  # kinds of events that can change the served version


def served_before(events: Sequence[Mapping[str, Any]], served: int | None) -> int | None:
    """The version that was served before the present one; None where the events know of none.

    events: of SERVING_KINDS, in order of time. Each that changed the served version holds it as `version` in its data,
    and as `before` the one it replaced; a wish that the engine has not confirmed has no `before`.
    """
    for event in reversed(events):
        version, before = event["data"].get("version"), event["data"].get("before")
        if version == served and before is not None and before != served:
            return int(before)
    return None
