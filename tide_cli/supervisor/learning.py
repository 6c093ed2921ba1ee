"""When to train, and which draft belongs into the engine. Pure: told what happened, it returns actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tide_cli.adaptation.trigger import TriggerRules, TriggerState, should_train
from tide_cli.supervisor.messages import (
    Action,
    Answer,
    Note,
    PauseAsked,
    Serve,
    Swap,
    Swapped,
    Tell,
    TrainAsked,
    UseAsked,
)


class Learning:
    """The served version, the swap under way and the training cycle under way.

    cycle_tokens: new stored tokens that start a cycle; trained_at: the spool's token total when the last one began;
    paused: no cycle begins until the user says so.
    """

    def __init__(self, cycle_tokens: int, trained_at: int = 0, paused: bool = False) -> None:
        self.cycle_tokens = cycle_tokens
        self.trained_at = trained_at
        self.paused = paused
        self.totals: Mapping[str, int] = {}
        self.served: int | None = None
        self.training = False
        self.progress: Mapping[str, Any] = {}
        self.last_gate: Mapping[str, Any] | None = None
        self._wanted: int | None = None
        self._swapping: Swap | None = None
        self._ticket: int | None = None
        self._now_ticket: int | None = None

    @property
    def new_tokens(self) -> int:
        """Tokens stored since the last cycle began; a spool that was emptied meanwhile starts at nothing."""
        if not self.totals:
            return 0  # nobody has looked yet
        total = self.totals.get("tokens", 0)
        if total < self.trained_at:
            self.trained_at = 0
        return total - self.trained_at

    def pursue(self, engine: int | None, trainer_ready: bool) -> list[Action]:
        """What is due now. engine: the generation of the engine where it is READY, else None."""
        if engine is not None and self._wanted is not None and self._swapping is None:
            self._swapping = Swap(self._wanted, engine)
            return [self._swapping]
        settled = engine is not None and self._wanted is None
        if not (settled and trainer_ready and not self.training) or self.served is None or self.paused:
            return []
        trigger, rules = TriggerState(self.trained_at), TriggerRules(self.cycle_tokens)
        decision = should_train(trigger, rules, total_tokens=self.totals.get("tokens", 0), now=0.0)
        if not decision.train and self._now_ticket is None:
            return []
        reason = "asked for by the user" if self._now_ticket is not None else decision.reason
        data = {"tokens_total": self.totals.get("tokens", 0), "new_tokens": self.new_tokens, "served": self.served}
        self.training, self.progress = True, {}
        self.trained_at = self.totals.get("tokens", 0)
        actions: list[Action] = [
            Tell({"cmd": "train", "served": self.served}),
            Note("cycle", f"training: {reason}", data),
        ]
        if self._now_ticket is not None:
            actions.append(Answer(self._now_ticket, True, "a training cycle has begun"))
            self._now_ticket = None
        return actions

    def train_asked(self, message: TrainAsked, why_not: str | None) -> list[Action]:
        """`tide train now`. why_not: why no cycle can begin, None where one can."""
        if self.paused:
            why_not = why_not or "training is paused; `tide train resume` first"
        if self.training or self._now_ticket is not None:
            why_not = "a training cycle is already running"
        if why_not is not None:
            return [Answer(message.ticket, False, why_not)]
        self._now_ticket = message.ticket
        return []

    def pause_asked(self, message: PauseAsked) -> list[Action]:
        """`tide train pause`: a running cycle is cancelled and keeps what it has learned; `resume` undoes it."""
        word = "paused" if message.pause else "resumed"
        if message.pause == self.paused:
            state = "is paused already" if self.paused else "is not paused"
            return [Answer(message.ticket, True, f"training {state}")]
        self.paused = message.pause
        cancel: list[Action] = [Tell({"cmd": "cancel"})] if self.paused and self.training else []
        kind = "pause" if message.pause else "resume"
        return [*cancel, Note(kind, f"training {word} by the user"), Answer(message.ticket, True, f"training {word}")]

    def use_asked(self, message: UseAsked, engine_ready: bool) -> list[Action]:
        """`tide drafts use`: swap to a version, whatever the gate says."""
        if self.served is None:
            return [Answer(message.ticket, False, "speculation is off: no draft is served")]
        if not engine_ready:
            return [Answer(message.ticket, False, "the engine is not ready; try again when `tide ps` says READY")]
        if self._wanted is not None:
            return [Answer(message.ticket, False, "another swap is under way; try again in a moment")]
        self._wanted, self._ticket = message.version, message.ticket
        return [Note("use", f"v{message.version:04d} asked for by the user", {"version": message.version})]

    def trainer_said(self, event: Mapping[str, Any]) -> list[Action]:
        """One event of the trainer, `ready` excepted."""
        kind = event.get("event")
        if kind == "progress":
            self.progress = event
            return []
        if kind == "gate":
            self.last_gate = event
            verdict = "passed" if event.get("passed") else "not passed"
            return [Note("gate", f"gate {verdict}: {event.get('reason', '')}", event)]
        if kind == "published":
            version = int(event["version"])
            if self._ticket is None:  # else the user has just asked for another one, which he gets
                self._wanted = version
            return [Note("published", f"v{version:04d} published", event)]
        if kind == "cycle_end":
            self.training, self.progress = False, {}
            return [Note("cycle_end", f"cycle ended: {event.get('reason', '')}", event)]
        if kind == "error":
            self.training, self.progress = False, {}  # a cycle that fails has no other end
            return [Note("trainer_error", str(event.get("message", "")), event)]
        return [Note("trainer_error", f"the trainer sent an unknown event {kind!r}", event)]

    def trainer_gone(self) -> list[Action]:
        """The trainer's process ended: its cycle ended with it."""
        actions: list[Action] = []
        if self.training:
            actions.append(Note("cycle_end", "cycle lost: the trainer ended", {"published": None}))
        self.training, self.progress = False, {}
        return actions

    def swapped(self, message: Swapped, engine: int | None) -> list[Action]:
        """The engine's answer to a swap. A swap cut short by the engine's end is taken up again when it is back."""
        if self._swapping != Swap(message.version, message.generation):
            return []
        self._swapping = None
        name = f"v{message.version:04d}"
        if message.error is not None:
            if engine != message.generation:
                return []
            if self._wanted == message.version:
                self._wanted = None
            note = Note("swap_refused", f"{name} not taken: {message.error}", {"version": message.version})
            return [note, *self._answer(False, f"{name} was refused: {message.error}")]
        data = {"version": message.version, "before": self.served}
        if self._wanted == message.version:
            self._wanted = None
        self.served = message.version
        return [
            Serve(message.version),
            Note("swap", f"{name} is served", data),
            *self._answer(True, f"{name} is served"),
        ]

    def engine_gone(self) -> list[Action]:
        """The engine ended: a swap under way counts as not done."""
        self._swapping = None
        if self._ticket is not None:
            self._wanted = None
        return self._answer(False, "the engine ended")

    def _answer(self, ok: bool, text: str) -> list[Action]:
        if self._ticket is None:
            return []
        ticket, self._ticket = self._ticket, None
        return [Answer(ticket, ok, text)]
