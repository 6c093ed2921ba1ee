"""Tells when the engine has gone over to plain decoding, or back to speculation, and stayed there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tide_cli.supervisor.messages import Note

_SHOWN = ("adaptive", "steps", "reason", "batch", "speedup", "acceptance", "probe_share", "rounds", "measuring")
_HOLDS = 30.0  # seconds after which a decision is more than a passing load


class SpeculationNews:
    """state: the latest from the engine, the part that a status shows; None where there is none."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self._told: bool | None = None
        self._other_since: float | None = None

    def look(self, state: Mapping[str, Any] | None, now: float) -> list[Note]:
        """One look at what engine/plugin/speculation.py reports; a note where plain or not has changed for long."""
        self.state = {name: state[name] for name in _SHOWN} if state else None
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
