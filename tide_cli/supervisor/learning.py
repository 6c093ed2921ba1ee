"""When to train, and which draft belongs into the engine. Pure: told what happened, it returns actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tide_cli.adaptation.trigger import (
    TriggerRules,
    TriggerState,
    cycle_began,
    cycle_cut,
    cycle_ended,
    cycle_over,
    drifted,
    new_tokens,
    should_train,
    threshold,
)
from tide_cli.supervisor.messages import (
    CANCELLED,
    Action,
    Answer,
    MarkBad,
    Note,
    PauseAsked,
    Serve,
    Swap,
    Swapped,
    Tell,
    TrainAsked,
    UseAsked,
)
from tide_cli.supervisor.performance import Performance, taken_back
from tide_cli.telemetry.totals import ServedRequest


class Learning:
    """The served version, the swap under way, the training cycle under way, and what live requests say of them.

    rules: when a cycle begins; trained_at: the spool's token total when the last one began; paused: no cycle begins
    until the user says so; cut_short: a pause has ended that cycle, and `resume` goes on with it; pool: whether kept
    versions are tried on drift.
    """

    def __init__(
        self,
        rules: TriggerRules,
        performance: Performance,
        trained_at: int = 0,
        paused: bool = False,
        cut_short: bool = False,
        pool: bool = True,
    ) -> None:
        self.rules = rules
        self.performance = performance
        self.paused = paused
        self.totals: Mapping[str, int] = {}
        self.served: int | None = None
        self.training = False
        self.progress: Mapping[str, Any] = {}
        self.last_gate: Mapping[str, Any] | None = None
        self.coverage: Mapping[str, Any] | None = None  # of the served draft's vocabulary, at the last cycle's start
        self._pool = pool
        self._doubt: Mapping[str, Any] | None = None  # a finding: the served version and the one before are compared
        self._comparing = False
        self._pool_due = False  # the traffic has changed: kept versions are to be tried
        self._published: int | None = None  # by the last gate
        self._trigger = TriggerState(trained_at, cut=cut_short)
        self._in_cycle = False  # as of the last look
        self._wanted: int | None = None
        self._swapping: Swap | None = None
        self._returning = False  # the wanted version comes back: it is not on trial
        self._ticket: int | None = None
        self._now_ticket: int | None = None

    @property
    def new_tokens(self) -> int:
        """Tokens stored since the last cycle began."""
        return new_tokens(self._trigger, self.totals.get("tokens", 0)) if self.totals else 0

    @property
    def tokens_needed(self) -> int:
        """New tokens at which the next cycle begins, with the back-off after cycles that brought nothing."""
        return threshold(self._trigger, self.rules)

    @property
    def rests_until(self) -> float | None:
        """The monotonic second before which no cycle begins by itself."""
        return self._trigger.rests_until

    def starts_with(self, version: int | None) -> None:
        """The engine is started with this version."""
        self.served = version
        if version is not None:
            self.performance.changed(version, None, trial=False)

    def pursue(self, engine: int | None, trainer_ready: bool, now: float) -> list[Action]:
        """What is due now. engine: the generation of the engine where it is READY, else None."""
        if self._in_cycle and not self.training:
            self._in_cycle, self._trigger = False, cycle_over(self._trigger, self.rules, now=now)
        if engine is not None and self._wanted is not None and self._swapping is None:
            self._swapping = Swap(self._wanted, engine)
            return [self._swapping]
        settled = engine is not None and self._wanted is None
        if self._doubt is not None and settled and (self.paused or not trainer_ready):
            return [*self._take_back(self._doubt["reason"]), *self.pursue(engine, trainer_ready, now)]
        asked = self._now_ticket is not None
        looked = asked or bool(self.totals)  # what has been trained on is known; how much there is may not be yet
        if not (settled and trainer_ready and looked) or self.served is None or self.paused:
            return []
        if self._doubt is not None and not self.training:
            self._comparing, self.training, self.progress = True, True, {}
            return [Tell({"cmd": "choose", "served": self.served, "among": [self._doubt["previous"]]})]
        if self._pool_due and not self.training and not asked:
            # a version that was kept may suit the new traffic already: seconds instead of a cycle
            self._pool_due, self.training, self.progress = False, True, {}
            return [Tell({"cmd": "choose", "served": self.served})]
        total = self.totals.get("tokens", 0)
        decision = should_train(
            self._trigger, self.rules, total_tokens=total, now=now, running=self.training, requested=asked
        )
        if not decision.train:
            return []
        data: dict[str, Any] = {"tokens_total": total, "new_tokens": self.new_tokens, "served": self.served}
        data["trigger"] = self._trigger.to_json()
        self.training, self._in_cycle, self.progress = True, True, {}
        self._trigger = cycle_began(self._trigger, total_tokens=total, now=now)
        actions: list[Action] = [
            Tell({"cmd": "train", "served": self.served}),
            Note("cycle", f"training: {decision.reason}", data),
        ]
        if self._now_ticket is not None:
            actions.append(Answer(self._now_ticket, True, "a training cycle has begun"))
            self._now_ticket = None
        return actions

    def observed(self, requests: Sequence[ServedRequest]) -> list[Action]:
        """Requests that have ended: a version that does not keep its promise goes, drift asks for a cycle."""
        actions: list[Action] = []
        for finding in self.performance.observe(requests):
            actions.append(Note(finding.kind, finding.text, finding.data))
            if finding.kind == "drift":
                self._trigger = drifted(self._trigger, finding.text)
                self._pool_due = self._pool
            if self._ticket is not None:  # the user has just asked for another one
                continue
            if finding.kind == "rollback":
                self._wanted, self._returning = finding.data["previous"], True
                actions.append(MarkBad(finding.data["version"], finding.text))
            if finding.kind == "doubt":
                self._doubt = finding.data
        return actions

    def _take_back(self, reason: str) -> list[Action]:
        """The version in doubt goes."""
        doubt, self._doubt = self._doubt, None
        assert doubt is not None
        text = taken_back(doubt["version"], doubt["previous"], reason)
        self._wanted, self._returning = doubt["previous"], True
        return [Note("rollback", text, doubt), MarkBad(doubt["version"], text)]

    def _compared(self, event: Mapping[str, Any]) -> list[Action]:
        """Both versions were walked over the newest samples; where the one before could not be, the served stays."""
        self._comparing = False
        if self._doubt is None or event.get("reason") == CANCELLED:
            return []  # of a swap meanwhile; or a pause, after which it is looked at again
        if event.get("version") is not None:
            return self._take_back(str(event.get("reason", "")))
        doubt, self._doubt = self._doubt, None
        served, before = (f"v{doubt[name]:04d}" for name in ("version", "previous"))
        text = f"{served} stays: on the newest samples {before} is no better ({event.get('reason', '')})"
        return [Note("trusted", text, {**doubt, "walked": event.get("walked")})]

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
        """`tide train pause`: a running cycle is cut short and keeps what it has learned; `resume` goes on with it."""
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
        self._wanted, self._ticket, self._returning = message.version, message.ticket, False
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
        if kind == "coverage":
            return self._covered(event)
        if kind == "published":
            version = self._published = int(event["version"])
            if self._ticket is None:  # else the user has just asked for another one, which he gets
                self._wanted, self._returning = version, False
            return [Note("published", f"v{version:04d} published", event)]
        if kind == "pool":
            return self._pool_chosen(event)
        if kind == "cycle_end":
            self.training, self.progress = False, {}
            if event.get("reason") == CANCELLED:
                self._trigger = cycle_cut(self._trigger)
            elif self.last_gate is not None and self.last_gate.get("cycle") == event.get("cycle"):
                # without a verdict it says nothing about the next one
                self._trigger = cycle_ended(self._trigger, published=event.get("published") is not None)
            return [Note("cycle_end", f"cycle ended: {event.get('reason', '')}", event)]
        if kind == "error":
            self.training, self.progress = False, {}  # a cycle that fails has no other end
            failed = self._take_back(self._doubt["reason"]) if self._comparing and self._doubt else []
            self._comparing = False
            return [Note("trainer_error", str(event.get("message", "")), event), *failed]
        return [Note("trainer_error", f"the trainer sent an unknown event {kind!r}", event)]

    def _covered(self, event: Mapping[str, Any]) -> list[Action]:
        """Told when the served vocabulary begins to cover too little, and whenever a cycle trains with another one."""
        low = event["served"] < event["wanted"]
        known, self.coverage = self.coverage, event
        if not event["changed"] and (not low or (known is not None and known["served"] < known["wanted"])):
            return []
        text = f"the draft's vocabulary covers {event['served']:.1%} of {event['tokens']} recent tokens"
        if low:
            text += f", less than {event['wanted']:.1%}"
        if event["changed"]:
            text += f"; training with {event['changed']} others: {event['candidate']:.1%}"
        return [Note("coverage", text, event)]

    def _pool_chosen(self, event: Mapping[str, Any]) -> list[Action]:
        self.training = False
        if self._comparing:
            return self._compared(event)
        self._pool_due |= event.get("reason") == CANCELLED  # to be asked again after the pause
        version = event.get("version")
        if version is not None and self._ticket is None and event.get("served") == self.served:
            self._wanted, self._returning = int(version), False
            self._trigger = replace(self._trigger, drift=None)  # dealt with, without training
        return [Note("pool", f"kept versions on the new traffic: {event.get('reason', '')}", event)]

    def trainer_gone(self) -> list[Action]:
        """The trainer's process ended: its cycle ended with it."""
        actions: list[Action] = []
        if self.training:
            actions.append(Note("cycle_end", "cycle lost: the trainer ended", {"published": None}))
        self.training, self._comparing, self.progress = False, False, {}
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
        # what the version that leaves had come to, to be compared with
        data = {"version": message.version, "before": self.served, "domains": self.performance.domains}
        if self._wanted == message.version:
            self._wanted = None
        self.served, self._doubt = message.version, None
        self.performance.changed(message.version, self._gate_of(message.version), trial=not self._returning)
        self._returning = False
        return [
            Serve(message.version),
            Note("swap", f"{name} is served", data),
            *self._answer(True, f"{name} is served"),
        ]

    def _gate_of(self, version: int) -> Mapping[str, Any] | None:
        """The last gate's figures, where it was about this version against the one before."""
        return self.last_gate if version == self._published else None

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
