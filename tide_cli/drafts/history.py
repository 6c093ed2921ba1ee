"""What was served when, from the rows of the events table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SERVING_KINDS = ("swap", "ready")  # kinds of events that tell which version the engine has: what was asked for is none


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
