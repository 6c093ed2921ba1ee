"""What decode rounds take on this engine: a measurement while one is on, else corrections of what was measured before.

A round lasts from its start to the start of the next one; only rounds with nothing between them count.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sglang.srt.runtime_context import get_parallel

from tide_cli.engine.plugin.profile import Conditions, Measurement, Profile, load_profile
from tide_cli.engine.plugin.round_times import RoundTimes
from tide_cli.errors import reason

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RoundClock:
    """seconds: the clock. On a CPU the scheduler thread's own computing time: what a neighbour takes away costs every
    number of steps alike, and would only be noise. Not the whole process's: there a second that all threads share
    counts several times, and one of the many small calls of a draft, which a single thread makes, once. lag: 1 where
    the scheduler launches a round before it waits for the one before, so that the time between two launches is that of
    the round before. folder: of the kept profiles.

    times: by which the policy goes; profile: what they began as. None, both, before the first measurement.
    """

    def __init__(
        self, seconds: Callable[[], float], lag: int, most_steps: int, folder: Path, conditions: Conditions
    ) -> None:
        self._seconds, self._most_steps = seconds, most_steps
        self._folder, self._conditions = folder, conditions
        self._parts = not lag  # with a lag, a call returns before its work is done
        self._latest: deque[tuple[int, int]] = deque(maxlen=lag + 1)  # (batch, steps) of rounds without a break
        self._taken: dict[str, float] = {}  # by the parts of this round, in seconds
        self._started = 0.0
        self._measurement: Measurement | None = None
        self._lost = False  # the file lacks what was measured last
        self.profile: Profile | None = None
        self.times: RoundTimes | None = None

    def load(self) -> None:
        """Go by what was measured under these conditions, in an earlier life."""
        self._take(load_profile(self._folder, self._conditions, self._most_steps))

    # ------------------------------------------------------------ of each round

    def end_round(self) -> None:
        """The clock says how long the round `lag` before this one took, if nothing came between."""
        now = self._seconds()
        if len(self._latest) == self._latest.maxlen:
            batch, steps = self._latest[0]
            seconds = now - self._started
            if self._measurement is not None:
                self._measurement.add(batch, steps, seconds, self._taken)
            elif self.times is not None and steps <= self.times.most_steps and seconds > 0:
                self.times.observe(batch, steps, seconds)
        self._started = now

    def begin_round(self, batch: int, steps: int) -> None:
        """At the moment the one before has ended."""
        self._latest.append((batch, steps))
        self._taken = {}

    def interrupt(self) -> None:
        """What follows is not a decode round: the round before has no end that could be timed."""
        self._latest.clear()

    def aside(self, call: Callable[[], object]) -> None:
        """call(), which is no part of this round."""
        begun = self._seconds()
        call()
        self._started += self._seconds() - begun

    def timed(self, part: str, call: Callable[[], T]) -> T:
        """call(), and how long it took, while round times are measured."""
        if self._measurement is None or not self._latest:
            return call()
        begun = self._seconds()
        result = call()
        if self._parts:
            self._taken[part] = self._taken.get(part, 0.0) + self._seconds() - begun
        return result

    # ------------------------------------------------------------ measuring

    @property
    def file(self) -> Path | None:
        """Where the profile is kept; None where it could not be written."""
        return None if self._lost else self._conditions.file(self._folder)

    @property
    def measuring(self) -> bool:
        return self._measurement is not None

    def measure(self, value: float) -> None:
        """1: begin to measure round times; 0: end, keep the result and go by it; -1: end without a result.

        What it could not measure (other requests came between) stays as it was. A result that cannot be written, and
        is measured again in the next life, is gone by all the same: an exception here would end the engine.
        """
        begun, self._measurement = self._measurement, Measurement(self._most_steps) if value > 0 else None
        if value == 0 and begun is not None and (profile := begun.result(self._conditions)) is not None:
            self._take(profile := profile.over(self.profile))
            if get_parallel().tp_rank == 0:
                self._keep(profile)

    def steps_to_measure(self) -> int | None:
        """Of the next round; None where no measurement is on, or it is overdue and ends here."""
        if self._measurement is None or self._measurement.overdue:
            self._measurement = None
            return None
        return self._measurement.next_steps()

    def _keep(self, profile: Profile) -> None:
        try:
            profile.save(self._folder)
        except OSError as error:
            logger.warning("tide: the measured round times are not kept in %s: %s", self._folder, reason(error))
            self._lost = True
        else:
            self._lost = False

    def _take(self, profile: Profile | None) -> None:
        self.profile = profile
        self.times = RoundTimes(profile.cells) if profile else None
