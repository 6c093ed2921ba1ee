"""When a cycle begins: the trigger's state follows from the events since the last one began, and from nothing else.

So an appliance that begins can go on where the one before it ended, from the events table. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tide_cli.adaptation.trigger import (
    TriggerRules,
    TriggerState,
    cycle_barren,
    cycle_began,
    cycle_cut,
    cycle_over,
    cycle_published,
    drift_answered,
    drifted,
    is_undecided,
    taken_back,
)
from tide_cli.supervisor.messages import CANCELLED

HEARD = ("cycle", "gate", "published", "cycle_end", "trainer_error", "drift", "swap", "rollback")  # kinds of events


class CycleTrigger:
    """rules: when a cycle begins; state: what is known of those before."""

    def __init__(self, rules: TriggerRules, state: TriggerState | None = None) -> None:
        self.rules = rules
        self.state = state or TriggerState()
        self._running = self._judged = False  # a cycle is under way; it has come to a verdict

    def heard(self, kind: str, text: str, data: Mapping[str, Any], now: float) -> None:
        """One event more, and what it changes."""
        match kind:
            case "cycle":
                self.state = cycle_began(self.state, total_tokens=int(data.get("tokens_total", 0)), now=now)
                self._running, self._judged = True, False
            case "gate":
                bound = data.get("lower_bound")  # None: there was too little to judge by
                self._judged = bound is not None and not is_undecided(
                    self.rules, gain=data.get("gain"), lower_bound=bound
                )
            case "published":
                self.state = cycle_published(self.state, int(data["version"]))
            case "cycle_end" if self._running:
                if data.get("reason") == CANCELLED:
                    self.state = cycle_cut(self.state)
                elif self._judged and data.get("published") is None and not data.get("lost"):
                    self.state = cycle_barren(self.state)
                self._over(now)
            case "trainer_error" if (
                self._running and data.get("event") == "error"
            ):  # a cycle that fails has no other end
                self._over(now)
            case "drift":
                self.state = drifted(self.state, text)
            case "swap" if data.get("pool"):  # a kept version that the engine refuses answers nothing
                self.state = drift_answered(self.state)
            case "rollback":
                self.state = taken_back(self.state, int(data["version"]))

    def abandon(self) -> bool:
        """The cycle under way has ended with the appliance that ran it, at a time that nobody knows: it takes no more
        time, and no later event is about it. Whether there was one."""
        running, self._running, self._judged = self._running, False, False
        return running

    def _over(self, now: float) -> None:
        self._running = False
        self.state = cycle_over(self.state, self.rules, now=now)
