"""When to train, and what the trainer does. Pure: told what happened, it returns actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from tide_cli.adaptation.decided import decided_from
from tide_cli.adaptation.rollback import Watch
from tide_cli.adaptation.trigger import new_tokens, should_train, threshold
from tide_cli.printable import many
from tide_cli.supervisor.cycle_trigger import CycleTrigger
from tide_cli.supervisor.messages import CANCELLED, Action, Answer, Note, Passed, PauseAsked, Swapped, Tell, TrainAsked
from tide_cli.supervisor.performance import Performance
from tide_cli.supervisor.serving import TOO_LATE, Serving, Wish
from tide_cli.telemetry.totals import ServedRequest


class Doing(Enum):
    """What the trainer does, one thing at a time; in words, as an answer to who wants a cycle now."""

    NOTHING = ""
    CYCLE = "a training cycle is already running"
    POOL = "kept versions are being tried on the new traffic; try again in a moment"
    COMPARISON = "the served version is being compared with the one before; try again in a moment"


class Learning:
    """What the trainer does and has said, and when it begins the next thing.

    trigger: when a cycle begins; paused: none does until the user says so; pool: whether kept versions are tried on
    drift; trial: of the version that was served last, if it was not over. serving: which draft is served.
    """

    def __init__(
        self,
        trigger: CycleTrigger,
        performance: Performance,
        paused: bool = False,
        pool: bool = True,
        trial: Watch | None = None,
    ) -> None:
        self.trigger = trigger
        self.performance = performance
        self.serving = Serving(performance, trial)
        self.paused = paused
        self.totals: Mapping[str, int] = {}
        self.held_out: int | None = None  # samples in the spool that no draft is trained on; None before it is known
        self.doing = Doing.NOTHING
        self.progress: Mapping[str, Any] = {}
        self.last_gate: Mapping[str, Any] | None = None
        self.coverage: Mapping[str, Any] | None = None  # of the vocabulary served when the last cycle began
        self._pool = pool
        # the traffic has changed: kept versions are to be tried
        self._pool_due = pool and trigger.state.drift is not None
        self._heard = 0.0  # when the trainer has begun, or said something about, what it does
        self._now_ticket: int | None = None

    @property
    def served(self) -> int | None:
        """The version in the engine; None without speculation."""
        return self.serving.served

    @property
    def new_tokens(self) -> int:
        """Tokens stored since the last cycle began."""
        return new_tokens(self.trigger.state, self.totals.get("tokens", 0)) if self.totals else 0

    @property
    def tokens_needed(self) -> int:
        """New tokens at which the next cycle begins, with the back-off after cycles that brought nothing."""
        return threshold(self.trigger.state, self.trigger.rules)

    @property
    def rests_until(self) -> float | None:
        """The monotonic second before which no cycle begins by itself."""
        return self.trigger.state.rests_until

    @property
    def tries_versions(self) -> bool:
        """Whether versions that were kept are walked, or are to be as soon as the trainer has time."""
        return self.doing in (Doing.POOL, Doing.COMPARISON) or (self._pool_due and not self.paused)

    def silent_until(self, patience: float) -> float | None:
        """The monotonic second at which a trainer at work was silent for `patience` s; None where it does nothing."""
        return None if self.doing is Doing.NOTHING else self._heard + patience

    def slept(self, now: float) -> None:
        """The supervisor itself has not run for a while: what the trainer said meanwhile is still to be read."""
        self._heard = now

    def pursue(self, engine: int | None, trainer_ready: bool | None, now: float) -> list[Action]:
        """What is due now. engine: the generation of the engine where it is READY, else None; trainer_ready: None where
        it will not be ready any more."""
        if engine is None or self.serving.wish is not None:
            return self.serving.next_swap(engine)
        doubt, served = self.serving.doubt, self.serving.served
        if doubt is not None and trainer_ready is None:
            return [*self._told(self.serving.take_back(doubt), now), *self.serving.next_swap(engine)]
        if self.serving.follow(now):
            return self.serving.next_swap(engine)
        if not trainer_ready or served is None or self.doing is not Doing.NOTHING:
            return []
        if doubt is not None:
            self._begin(Doing.COMPARISON, now)
            return [self.serving.compare(doubt)]
        asked = self._now_ticket is not None
        looked = asked or bool(self.totals)  # what has been trained on is known; how much there is may not be yet
        if self.paused or not looked:
            return []
        if self.serving.passed is not None and not asked:  # a cycle would begin anew from the version that is to leave
            return []
        if self._pool_due and not asked:
            # a version that was kept may suit the new traffic already: seconds instead of a cycle
            self._pool_due = False
            self._begin(Doing.POOL, now)
            return [Tell({"cmd": "choose", "served": served})]
        total, state, rules = self.totals.get("tokens", 0), self.trigger.state, self.trigger.rules
        given: dict[str, Any] = {"total_tokens": total, "now": now, "requested": asked, "held_out": self.held_out}
        decision = should_train(state, rules, **given)
        if not decision.train:
            return []
        data: dict[str, Any] = {"tokens_total": total, "new_tokens": self.new_tokens, "served": served}
        data["decided_from"] = decided_from(state, rules, **given)
        self._begin(Doing.CYCLE, now)
        return [
            Tell({"cmd": "train", "served": served}),
            *self._told([Note("cycle", f"training: {decision.reason}", data)], now),
            *self._answer(True, "a training cycle has begun"),
        ]

    def _told(self, actions: list[Action], now: float) -> list[Action]:
        """These actions, whose notes the trigger has heard."""
        for action in actions:
            if isinstance(action, Note):
                self.trigger.heard(action.kind, action.text, action.data, now)
        return actions

    def _begin(self, work: Doing, now: float) -> None:
        self.doing, self.progress, self._heard = work, {}, now

    def _ended(self, now: float) -> Doing:
        """The trainer does nothing more; what it did."""
        work = self.doing
        self._begin(Doing.NOTHING, now)
        return work

    def observed(self, requests: Sequence[ServedRequest], now: float) -> list[Action]:
        """Requests that have ended: a version that does not keep its promise goes, drift asks for a cycle."""
        actions: list[Action] = []
        for finding in self.performance.observe(requests):
            actions += self.serving.found(finding)
            if finding.kind == "drift":
                self._pool_due = self._pool
        return self._told(actions, now)

    def train_asked(self, message: TrainAsked, why_not: str | None) -> list[Action]:
        """`tide train now`. why_not: why no cycle can begin, None where one can."""
        if self.paused:
            why_not = why_not or "training is paused; `tide train resume` first"
        busy = Doing.CYCLE if self._now_ticket is not None else self.doing
        why_not = why_not or busy.value
        if self.serving.passed is not None:  # a cycle of now would begin from the version that is to leave
            why_not = why_not or f"v{self.serving.passed.version:04d} waits to be served; try again in a minute"
        if why_not:
            return [Answer(message.ticket, False, why_not)]
        self._now_ticket = message.ticket
        return []

    def pause_asked(self, message: PauseAsked) -> list[Action]:
        """`tide train pause`: a running cycle is cut short and keeps what it has learned; `resume` goes on with it.

        A doubt about the served version does not wait for that: its comparison, a few samples walked, is let end.
        """
        word = "paused" if message.pause else "resumed"
        if message.pause == self.paused:
            state = "is paused already" if self.paused else "is not paused"
            return [Answer(message.ticket, True, f"training {state}")]
        self.paused = message.pause
        cancel: list[Action] = []
        if self.paused:
            cancel = self._answer(False, "training has been paused")
            if self.doing in (Doing.CYCLE, Doing.POOL):
                cancel.append(Tell({"cmd": "cancel"}))
        kind = "pause" if message.pause else "resume"
        return [*cancel, Note(kind, f"training {word} by the user"), Answer(message.ticket, True, f"training {word}")]

    def trainer_said(self, event: Mapping[str, Any], now: float) -> list[Action]:
        """One event of the trainer, `ready` excepted."""
        self._heard = now
        return self._told(self._trainer_said(event, now), now)

    def _trainer_said(self, event: Mapping[str, Any], now: float) -> list[Action]:
        kind = event.get("event")
        if kind == "progress":
            self.progress = event
        if kind in ("progress", "alive"):
            return []
        if kind == "gate":
            self.last_gate = event
            verdict = "passed" if event.get("passed") else "not passed"
            return [Note("gate", f"gate {verdict}: {event.get('reason', '')}", event)]
        if kind == "coverage":
            return self._covered(event)
        if kind == "published":
            return self._published(event)
        if kind == "pool":
            compared = self._ended(now) is Doing.COMPARISON
            return self.serving.compared(event) if compared else self._pool_chosen(event)
        if kind == "cycle_end":
            self._ended(now)
            return [Note("cycle_end", f"cycle {event.get('cycle', '?')} ended: {event.get('reason', '')}", event)]
        if kind == "error":  # whatever fails has no other end
            compared = self._ended(now) is Doing.COMPARISON
            failed = self.serving.not_compared() if compared else []
            return [Note("trainer_error", str(event.get("message", "")), event), *failed]
        return [Note("trainer_error", f"the trainer sent an unknown event {kind!r}", event)]

    def swapped(self, message: Swapped, now: float) -> list[Action]:
        """The engine's answer to a swap; where the way back is closed, another kept version may do."""
        wish = self.serving.wish
        actions = self.serving.swapped(message, now)
        if wish is not None and wish.doubt is not None and self.serving.wish is None and message.error is not None:
            self._pool_due = self._pool
        return self._told(actions, now)

    def reported(self, version: int | None, now: float) -> list[Action]:
        """The draft that the engine says it has; None where it says nothing."""
        return self._told(self.serving.reported(version), now)

    def _published(self, event: Mapping[str, Any]) -> list[Action]:
        """The gate has judged it against its parent: where that is not served any more it says nothing."""
        version = int(event["version"])
        text = f"v{version:04d} published"
        if event.get("parent") != self.serving.served:
            return [Note("published", f"{text} and not served{TOO_LATE}", event)]
        self.serving.passed = Passed(version, self.last_gate)
        if self.serving.wish is not None:
            text += f"; it waits for the swap to v{self.serving.wish.version:04d}, which may come before it"
        elif self.serving.doubt is not None:
            text += f"; it waits until v{self.serving.doubt.version:04d} is compared with the one before"
        return [Note("published", text, event)]

    def _covered(self, event: Mapping[str, Any]) -> list[Action]:
        """Told when the served vocabulary begins to cover too little, and whenever a cycle trains with another one."""
        low = event["served"] < event["wanted"]
        known, self.coverage = self.coverage, event
        if not event["changed"] and (not low or (known is not None and known["served"] < known["wanted"])):
            return []
        served, wanted, candidate = (f"{100 * event[name]:.1f} %" for name in ("served", "wanted", "candidate"))
        name, tokens = f"v{event['version']:04d}", many(event["tokens"], "recent token")
        text = f"the vocabulary of {name} covers {served} of {tokens}"
        if low:
            text += f", less than {wanted}"
        if event["changed"]:
            text += f"; training with {event['changed']:,} others: {candidate}"
        return [Note("coverage", text, event)]

    def _pool_chosen(self, event: Mapping[str, Any]) -> list[Action]:
        self._pool_due |= event.get("reason") == CANCELLED  # to be asked again after the pause
        text, version = f"kept versions on the new traffic: {event.get('reason', '')}", event.get("version")
        taken = False
        if version is not None and self.serving.stays(event.get("served")):
            taken, walked = True, event.get("walked") or []
            figures = next((w for w in walked if w.get("version") == version), None)
            self.serving.wish = Wish(int(version), figures, from_pool=True)
        elif version is not None:
            text += TOO_LATE
        return [Note("pool", text, {**event, "taken": taken})]

    def trainer_gone(self, now: float) -> list[Action]:
        """The trainer's process ended: what it did ended with it."""
        actions = self._answer(False, "the trainer ended")
        work = self._ended(now)
        if work is Doing.CYCLE:
            lost = Note("cycle_end", "cycle lost: the trainer ended", {"published": None, "lost": True})
            actions += self._told([lost], now)
        elif work is Doing.COMPARISON:
            actions += self._told(self.serving.not_compared(), now)
        elif work is Doing.POOL:
            actions.append(Note("pool", "kept versions were not tried: the trainer ended"))
        return actions

    def engine_gone(self, now: float, asked: bool = False) -> list[Action]:
        """The engine's process ended; the trainer goes on. asked: the user wanted it to.

        Else a swap under way counts as refused: a version that ends the engine would do so again and again.
        """
        actions, swap = list[Action](), self.serving.under_way
        if swap is not None and not asked:
            actions = self.swapped(Swapped(swap.version, swap.generation, "the engine ended during the swap"), now)
        return [*actions, *self.serving.engine_gone(), *self._answer(False, "the engine ended")]

    def _answer(self, ok: bool, text: str) -> list[Action]:
        """To who has asked for a cycle now."""
        if self._now_ticket is None:
            return []
        ticket, self._now_ticket = self._now_ticket, None
        return [Answer(ticket, ok, text)]
