"""The state table of one child, and the rule by which it is started again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Of a child, and of the appliance as a whole (which is its engine's, once that has been started)."""

    WAITING = "WAITING"  # not started yet
    PREPARING = "PREPARING"  # target and draft are being made ready (appliance only)
    STARTING = "STARTING"
    READY = "READY"
    BACKOFF = "BACKOFF"  # ended, will be started again
    FATAL = "FATAL"  # ended, will not be started again
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class RestartPolicy:
    """Delays double from first_delay to longest_delay; `limit` failures in a row end it. Times in seconds.

    A child that was READY for `settled` seconds has begun a new row.
    """

    limit: int = 3
    first_delay: float = 1.0
    longest_delay: float = 60.0
    settled: float = 300.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (at least one)."""
        return min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 30))


@dataclass
class Child:
    """One child: its state, since when (monotonic seconds), and when something must have happened."""

    name: str
    state: State = State.WAITING
    generation: int = 0
    failures: int = 0
    since: float = 0.0
    deadline: float | None = None
    reason: str | None = None

    @property
    def alive(self) -> bool:
        """Whether a process may exist."""
        return self.state in (State.STARTING, State.READY, State.STOPPING)

    def starting(self, now: float, timeout: float | None) -> None:
        self.generation += 1
        self._enter(State.STARTING, now, None if timeout is None else now + timeout)

    def ready(self, now: float) -> None:
        self.reason = None
        self._enter(State.READY, now)

    def stopping(self, now: float, timeout: float) -> None:
        self._enter(State.STOPPING, now, now + timeout)

    def stopped(self, now: float) -> None:
        self._enter(State.STOPPED, now)

    def failed(self, now: float, reason: str, policy: RestartPolicy, *, final: bool = False) -> None:
        """It ended by itself: BACKOFF with a deadline for the next start, or FATAL at the limit or where `final`."""
        if self.state is State.READY and now - self.since >= policy.settled:
            self.failures = 0
        self.failures += 1
        self.reason = reason
        if final or self.failures >= policy.limit:
            self._enter(State.FATAL, now)
        else:
            self._enter(State.BACKOFF, now, now + policy.delay(self.failures))

    def _enter(self, state: State, now: float, deadline: float | None = None) -> None:
        self.state, self.since, self.deadline = state, now, deadline
