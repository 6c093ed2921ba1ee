"""The state table of one child, and the rule by which it is started again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Of a child, and of the appliance as a whole (which is its engine's, once that has been started)."""

    WAITING = "WAITING"  # not started yet
    PREPARING = "PREPARING"  # target and draft are being made ready (appliance only)
    STARTING = "STARTING"
    READY = "READY"
    DEGRADED = "DEGRADED"  # runs, but has given no token for a while
    BACKOFF = "BACKOFF"  # ended, will be started again
    FATAL = "FATAL"  # ended, will not be started again
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    DONE = "DONE"  # a step before the engine that has ended well


@dataclass(frozen=True)
class RestartPolicy:
    """Delays double from first_delay to longest_delay; `limit` failures in a row end it. Times in seconds.

    A child that was READY for `settled` seconds has begun a new row.
    """

    limit: int = 5
    first_delay: float = 1.0
    longest_delay: float = 60.0
    settled: float = 300.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (at least one)."""
        return min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 30))


@dataclass(frozen=True)
class Limits:
    """Seconds, all of them of the monotonic clock."""

    start_timeout: float
    stop_timeout: float
    hang_timeout: float  # without a token, after which a running engine is ended
    train_hang_timeout: float  # without a word, after which a trainer that has something to do is ended
    policy: RestartPolicy = field(default_factory=RestartPolicy)


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
    ready_since: float | None = None  # of this start; kept until the next one
    terminate_at: float | None = None  # when TERM follows a kind word
    restart: bool = False  # its end was asked for, and it begins again

    @property
    def alive(self) -> bool:
        """Whether a process may exist."""
        return self.state in (State.STARTING, State.READY, State.DEGRADED, State.STOPPING)

    @property
    def up(self) -> bool:
        """Whether it has become ready and nobody has ended it yet."""
        return self.state in (State.READY, State.DEGRADED)

    def starting(self, now: float, timeout: float | None) -> None:
        self.generation += 1
        self.ready_since, self.restart = None, False
        self._enter(State.STARTING, now, None if timeout is None else now + timeout)

    def ready(self, now: float) -> None:
        self.reason, self.ready_since = None, now
        self._enter(State.READY, now)

    def degraded(self, now: float, reason: str) -> None:
        self.reason = reason
        self._enter(State.DEGRADED, now)

    def recovered(self, now: float) -> None:
        self.reason = None
        self._enter(State.READY, now)

    def stopping(self, now: float, timeout: float) -> None:
        self._enter(State.STOPPING, now, now + timeout)

    def stopped(self, now: float) -> None:
        self._enter(State.STOPPED, now)

    def done(self, now: float) -> None:
        self._enter(State.DONE, now)

    def failed(self, now: float, reason: str, policy: RestartPolicy, *, final: bool = False) -> None:
        """It ended by itself: BACKOFF with a deadline for the next start, or FATAL at the limit or where `final`."""
        if self.ready_since is not None and now - self.ready_since >= policy.settled:
            self.failures = 0
        self.failures += 1
        self.reason = reason
        if final or self.failures >= policy.limit:
            self._enter(State.FATAL, now)
        else:
            self._enter(State.BACKOFF, now, now + policy.delay(self.failures))

    def _enter(self, state: State, now: float, deadline: float | None = None) -> None:
        self.state, self.since, self.deadline, self.terminate_at = state, now, deadline, None
