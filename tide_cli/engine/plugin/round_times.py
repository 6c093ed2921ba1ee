"""What a decode round costs, by batch size and draft steps: measured once, then corrected from the traffic itself.

Only the ratio between two numbers of steps at the same batch size decides anything. A busy neighbour, longer contexts
or a warmer processor change all rounds alike, so a live round is compared with its neighbours in time: what they have
in common is the drift, and only what sets one number of steps apart from the others corrects its cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tide_cli.adaptation.speculation import interpolate

_DRIFT = 1 / 8  # weight of one round in the drift
_CORRECTION = 1 / 8  # part of a round's deviation that its cell takes over
_SETTLED = 4  # rounds in a row after which a drift is known
_OUTLIER = 0.25  # of the logarithm; what deviates more (a pause, an interrupt) counts as this much


class RoundTimes:
    """Seconds of a round: cells[batch, steps], 0 steps among them and the same batch sizes for each number of steps.

    Between measured batch sizes interpolated, beyond the largest in proportion. ValueError for a table with holes.
    """

    def __init__(self, cells: Mapping[tuple[int, int], float]) -> None:
        batches = sorted({batch for batch, _ in cells})
        self.most_steps = max((steps for _, steps in cells), default=-1)
        whole = {(batch, steps) for batch in batches for steps in range(self.most_steps + 1)}
        if not cells or set(cells) != whole or not all(0 < seconds < math.inf for seconds in cells.values()):
            raise ValueError(f"{len(cells)} round times for batch sizes {batches}: not a whole table")
        self._batches = batches
        self._rows = [[(batch, cells[batch, steps]) for batch in batches] for steps in range(self.most_steps + 1)]
        self._run: tuple[int, int] | None = None  # (batch, steps) of the latest rounds
        self._length = 0  # of that run, in rounds
        self._reference: tuple[int, int] | None = None  # the latest run that was long enough to tell the drift
        self.drift = 0.0  # logarithm of how much slower rounds are at present than the table says

    @property
    def cells(self) -> dict[tuple[int, int], float]:
        return {(batch, steps): seconds for steps, row in enumerate(self._rows) for batch, seconds in row}

    def round_seconds(self, batch: int, steps: int) -> float:
        return interpolate(self._rows[steps], batch)

    def observe(self, batch: int, steps: int, seconds: float) -> None:
        """A live round. Rounds in a row tell the drift; the first one of other steps corrects its cell.

        Going back to what ran before corrects nothing: the round of a switch costs a little more than those after it,
        and only what is tried now and then may be judged by such rounds, because it was measured in such rounds too.
        """
        error = math.log(seconds / self.round_seconds(batch, steps))
        if self._run == (batch, steps):
            self._length += 1
            if self._length >= _SETTLED:
                self._reference = self._run
            self.drift += _DRIFT * max(-1.0, min(1.0, error - self.drift))
            return
        self._run, self._length = (batch, steps), 1
        if self._reference is not None and self._reference[0] == batch and self._reference[1] != steps:
            deviation = max(-_OUTLIER, min(_OUTLIER, error - self.drift))
            self._correct(batch, steps, math.exp(_CORRECTION * deviation))

    def _correct(self, batch: int, steps: int, factor: float) -> None:
        row = self._rows[steps]
        near = min(range(len(row)), key=lambda i: abs(math.log(row[i][0] / batch)))
        row[near] = (row[near][0], row[near][1] * factor)
