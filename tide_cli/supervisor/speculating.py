"""What the engine reports of speculation: its figures, and the news when it has gone over to plain decoding or back.

Pure.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tide_cli.adaptation.speculation import expected_speedup, interpolate
from tide_cli.printable import many
from tide_cli.supervisor.messages import Note

_SHOWN = (
    *("draft_version", "adaptive", "steps", "reason", "batch", "speedup", "acceptance", "probe_share", "rounds"),
    "measuring",
)
_HOLDS = 30.0  # seconds after which a decision is more than a passing load
_LOOKS = 60  # over which acceptance by position is told, at most: ten minutes


class SpeculationNews:
    """state: the latest from the engine, the part that a status shows; None where there is none."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self._told: bool | None = None
        self._other_since: float | None = None
        self._rounds: _Rounds | None = None
        self._counts: deque[tuple[Any, Sequence[int], Sequence[int]]] = deque(maxlen=_LOOKS)

    def live(self, served: int | None, running: int | None) -> dict[str, Any]:
        """Of the status field `live`: by_position, draft_steps, why, plain_tok_s and speedup.

        served: the version; after a swap the latest report is of the one before, whose figures are not shown for it.
        running: requests, by which the two rates go; where it is none or not known, by the batch of the last round.
        """
        state = self.state or {}
        own = served is not None and state.get("draft_version") == served
        batch = running or state.get("batch")
        return {
            "by_position": self._by_position() if own else [],
            "draft_steps": state.get("steps"),
            "why": state.get("reason") if own else None,
            "plain_tok_s": self._rounds.plain_tok_s(batch) if self._rounds and batch else None,
            "speedup": self._speedup(state, batch) if own else None,
        }

    def _speedup(self, state: Mapping[str, Any], batch: int | None) -> float | None:
        """None while the engine knows none, because too little of the draft was judged."""
        if state["speedup"] is None or self._rounds is None or not batch:
            return None
        return round(expected_speedup(self._rounds, state["acceptance"], batch, state["steps"]), 3)

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
        self._rounds = _Rounds(state["now"], state["drift"]) if state and state.get("now") else None
        self._count(state)
        if state is None or state["measuring"] or not state["rounds"]:
            return []
        if self._rounds is not None and state["speedup"] is None:
            return []  # the number that is taken until the draft is known is no news
        speculates = state["steps"] > 0
        if speculates == self._told:
            self._other_since = None
            return []
        if self._other_since is None:
            self._other_since = now
        if now - self._other_since < _HOLDS:
            return []
        self._told, self._other_since = speculates, None
        what = f"speculation with {many(state['steps'], 'draft step')}" if speculates else "plain decoding"
        data = {name: state[name] for name in ("steps", "batch", "speedup", "acceptance")}
        data["decided_from"] = state.get("decided_from")
        return [Note("speculation", f"{what}: {state['reason']}", data)]


class _Rounds:
    """rows: the profile as live rounds have corrected it; drift: what all rounds have in common, a logarithm."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], drift: float) -> None:
        self._rows, self._drift = rows, drift

    def round_seconds(self, batch: int, steps: int) -> float:
        return interpolate([(row["batch"], row["seconds"][steps]) for row in self._rows], batch) * math.exp(self._drift)

    def plain_tok_s(self, batch: int) -> float:
        """Tokens/s of plain rounds."""
        return round(batch / self.round_seconds(batch, 0), 2)
