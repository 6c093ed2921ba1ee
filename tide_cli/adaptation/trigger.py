"""When a training cycle starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainDecision:
    """Whether to train now, and why, in words."""

    train: bool
    reason: str


def should_train(new_tokens: int, threshold: int, *, running: bool = False, requested: bool = False) -> TrainDecision:
    """A cycle starts at `threshold` tokens stored since the last one began, or at once when a user asked for it.

    running: a cycle is under way; there is never a second one.
    """
    if running:
        return TrainDecision(False, "a training cycle is running")
    if requested:
        return TrainDecision(True, f"asked for, with {new_tokens} new tokens stored")
    if new_tokens >= threshold:
        return TrainDecision(True, f"{new_tokens} new tokens stored, {threshold} start a cycle")
    return TrainDecision(False, f"{new_tokens} of {threshold} new tokens stored")
