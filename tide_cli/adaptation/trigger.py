"""When a training cycle starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class TrainDecision:
    """Whether to train now, and why, in words."""

    train: bool
    reason: str


@dataclass(frozen=True)
class TriggerRules:
    """tokens: new stored tokens that start a cycle. seconds, least_tokens: a cycle also starts so long after the last
    one began, with at least so many new tokens; no seconds, no such cycle. most_patience: the back-off asks for at most
    so many times the tokens and seconds. most_share: part of the time that cycles may take; below 1 where the trainer
    slows the engine down. held_out: samples kept out of training without which no cycle begins by itself, for its draft
    could not be judged. margin: the gate's, None: every refusal counts in the back-off."""

    tokens: int
    seconds: float | None = None
    least_tokens: int = 1
    most_patience: int = 16
    most_share: float = 1.0
    held_out: int = 0
    margin: float | None = None


@dataclass(frozen=True)
class TriggerState:
    """trained_at: the spool's token total when the last cycle began; began: when that was, or the appliance, in seconds
    of any clock.

    barren: cycles in a row that brought no new version. A draft at its ceiling would else be trained for ever, to no
    end: after k of them the next one waits for k times more tokens. drift: why acceptance counts as changed since the
    last cycle began, in words; it starts a cycle by itself. early: drift has begun the last one.
    cut: it was cut short before its verdict; the next one takes it up again, and begins at once. rests_until: no cycle
    begins before, unless it is asked for. published: the version that the last fruitful cycle brought; forgiven: what
    `barren` was before it, and is again where that version does not keep its promise.
    """

    trained_at: int = 0
    began: float = 0.0
    barren: int = 0
    drift: str | None = None
    early: bool = False
    cut: bool = False
    rests_until: float | None = None
    published: int | None = None
    forgiven: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TriggerState:
        return cls(**values)


def should_train(
    state: TriggerState,
    rules: TriggerRules,
    *,
    total_tokens: int,
    now: float,
    running: bool = False,
    requested: bool = False,
    held_out: int | None = None,
) -> TrainDecision:
    """Whether a cycle starts: asked for, to go on with one that was cut short, on drift, at enough new tokens, or after
    enough time with some.

    total_tokens: stored since the spool was made; now: on the clock of `state.began`. running: a cycle is under way;
    there is never a second one. held_out: samples kept out of training, None where that is not known.
    """
    new = new_tokens(state, total_tokens)
    if running:
        return TrainDecision(False, "a training cycle is running")
    if requested:
        return TrainDecision(True, f"asked for, with {new:,} new tokens stored")
    if held_out is not None and held_out < rules.held_out:
        return TrainDecision(False, f"{held_out} of {rules.held_out} held-out samples that the gate needs")
    if state.cut:
        return TrainDecision(True, f"going on with the cycle that was cut short; {new:,} new tokens stored since")
    if state.rests_until is not None and now < state.rests_until:
        share = f"they take {100 * rules.most_share:.0f} % of the time at most"
        rests = f"for {state.rests_until - now:.0f} s no cycle begins: {share}"
        return TrainDecision(False, f"{rests}; {new:,} new tokens stored")
    if state.drift is not None and new >= rules.least_tokens:
        return TrainDecision(True, f"{state.drift}; {new:,} new tokens stored")
    patience, needed = _patience(state, rules), threshold(state, rules)
    if new >= needed:
        return TrainDecision(True, f"{new:,} new tokens stored, {needed:,} start a cycle{_because(state)}")
    waited = now - state.began
    if rules.seconds is not None and waited >= rules.seconds * patience and new >= rules.least_tokens * patience:
        return TrainDecision(True, f"no cycle has begun for {waited:.0f} s, {new:,} new tokens stored")
    return TrainDecision(False, f"{new:,} of {needed:,} new tokens stored{_because(state)}")


def threshold(state: TriggerState, rules: TriggerRules) -> int:
    """New tokens that start the next cycle."""
    return rules.tokens * _patience(state, rules)


def _patience(state: TriggerState, rules: TriggerRules) -> int:
    return min(1 + state.barren, max(1, rules.most_patience))


def new_tokens(state: TriggerState, total_tokens: int) -> int:
    """Tokens stored since the last cycle began; a spool that was emptied meanwhile has started at nothing."""
    return total_tokens - state.trained_at if total_tokens >= state.trained_at else total_tokens


def cycle_began(state: TriggerState, *, total_tokens: int, now: float) -> TriggerState:
    """A cycle has begun: tokens and time count anew, and the drift that asked for it is dealt with."""
    early = state.drift is not None or (state.cut and state.early)
    return replace(state, trained_at=total_tokens, began=now, drift=None, early=early, cut=False)


def cycle_published(state: TriggerState, version: int) -> TriggerState:
    """A cycle has brought a new version."""
    return replace(state, barren=0, published=version, forgiven=state.barren)


def cycle_barren(state: TriggerState) -> TriggerState:
    """A cycle has come to its verdict and has brought nothing; one that was cut short, failed or could not be judged
    has none, and is not reported here.

    Two refusals are not counted, as waiting twice as long would be slow when there is most to learn: that of a cycle
    during which acceptance has fallen, since it was trained on the traffic before; and that of the cycle which the fall
    has begun, since it had few tokens of the new traffic.
    """
    counts = state.drift is None and not state.early
    return replace(state, barren=state.barren + counts)


def is_undecided(rules: TriggerRules, *, gain: float | None, lower_bound: float) -> bool:
    """Whether a gate has refused for want of samples: the gain is above the margin, but may be chance.

    Then the cycle has learned something, which the next one goes on with. To wait longer for that one would be slow
    when there is most to learn. A draft at its ceiling has no such gains but by chance, and not time and again.
    """
    return rules.margin is not None and gain is not None and lower_bound <= 0 and gain > rules.margin


def taken_back(state: TriggerState, version: int) -> TriggerState:
    """A version does not keep its promise: the cycle that brought it has brought nothing.

    Else a draft that passes the gate and fails live, time and again, would be trained at the full rate for ever. One
    that no cycle has brought just now changes nothing.
    """
    if version != state.published:
        return state
    return replace(state, barren=state.barren + state.forgiven + 1, published=None, forgiven=0)


def cycle_over(state: TriggerState, rules: TriggerRules, *, now: float) -> TriggerState:
    """A cycle, with or without a verdict, takes no more time: the next ones wait until that was their part of it."""
    return replace(state, rests_until=now + (now - state.began) * (1 / rules.most_share - 1))


def cycle_cut(state: TriggerState) -> TriggerState:
    """A cycle was cut short by a pause: what it has learned is kept, and is as good a reason to go on as it was."""
    return replace(state, cut=True)


def drifted(state: TriggerState, reason: str) -> TriggerState:
    """Acceptance has changed: what earlier cycles could not bring says nothing about the next one."""
    return replace(state, barren=0, forgiven=0, drift=reason)


def drift_answered(state: TriggerState) -> TriggerState:
    """A version that was kept suits the new traffic: no cycle is needed for it."""
    return replace(state, drift=None)


def _because(state: TriggerState) -> str:
    if not state.barren:
        return ""
    return f" (the last {'cycle' if state.barren == 1 else f'{state.barren} cycles'} brought nothing)"
