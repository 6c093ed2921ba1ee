"""What the engine reports of speculation: its figures, and the news when it has gone over to plain decoding or back.

Pure.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tide_cli.adaptation.speculation import interpolate
from tide_cli.supervisor.messages import Note

_SHOWN = ("adaptive", "steps", "reason", "batch", "speedup", "acceptance", "probe_share", "rounds", "measuring")
_HOLDS = 30.0  # seconds after which a decision is more than a passing load
_LOOKS = 60  # over which acceptance by position is told, at most: ten minutes


class SpeculationNews:
    """state: the latest from the engine, the part that a status shows; None where there is none."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self._told: bool | None = None
        self._other_since: float | None = None
        self._plain_tok_s: float | None = None
        self._counts: deque[tuple[Any, Sequence[int], Sequence[int]]] = deque(maxlen=_LOOKS)

    def live(self) -> dict[str, Any]:
        """Of the status field `live`: by_position, draft_steps, why, plain_tok_s and speedup."""
        state = self.state or {}
        return {
            "by_position": self._by_position(),
            "draft_steps": state.get("steps"),
            "why": state.get("reason"),
            "plain_tok_s": self._plain_tok_s,
            "speedup": state.get("speedup"),
        }

    def _by_position(self) -> list[float | None]:
        """Part of the proposals at each position that was accepted, of those judged; None where none was."""
        if not self._counts:
            return []
        (_, judged, accepted), (_, judged_now, accepted_now) = self._counts[0], self._counts[-1]
        seen = [now - before for before, now in zip(judged, judged_now, strict=True)]
        right = [now - before for before, now in zip(accepted, accepted_now, strict=True)]
        return [round(hits / number, 4) if number else None for hits, number in zip(right, seen, strict=True)]

    def _count(self, state: Mapping[str, Any] | None) -> None:
        if state is None or "judged" not in state:
            self._counts.clear()
            return
        version, judged = state.get("draft_version"), state["judged"]
        if self._counts and self._counts[-1][0] != version:
            self._counts.clear()  # another draft: what it does is counted from here
        elif not self._counts or sum(judged) < sum(self._counts[-1][1]):
            self._counts.clear()  # another engine, which began at nothing
            self._counts.append((version, [0] * len(judged), [0] * len(judged)))
        self._counts.append((version, judged, state["accepted"]))

    def look(self, state: Mapping[str, Any] | None, now: float) -> list[Note]:
        """One look at what engine/plugin/speculation.py reports; a note where plain or not has changed for long."""
        self.state = {name: state[name] for name in _SHOWN} if state else None
        self._plain_tok_s = plain_tok_s(state) if state else None
        self._count(state)
        if state is None or state["measuring"] or not state["rounds"]:
            return []
        speculates = state["steps"] > 0
        if speculates == self._told:
            self._other_since = None
            return []
        if self._other_since is None:
            self._other_since = now
        if now - self._other_since < _HOLDS:
            return []
        self._told, self._other_since = speculates, None
        what = f"speculation with {state['steps']} draft steps" if speculates else "plain decoding"
        data = {name: state[name] for name in ("steps", "batch", "speedup", "acceptance")}
        return [Note("speculation", f"{what}: {state['reason']}", data)]


def plain_tok_s(state: Mapping[str, Any]) -> float | None:
    """Tokens/s that plain rounds would give now, at the batch size in force; None without a profile.

    state["now"]: the profile as live rounds have corrected it; state["drift"]: what all rounds have in common.
    """
    rounds = [(row["batch"], row["seconds"][0]) for row in state.get("now") or ()]
    if not rounds:
        return None
    return round(state["batch"] / interpolate(rounds, state["batch"]) / math.exp(state["drift"]), 2)
