"""The optimiser steps of a cycle, until its time or tokens are used up or there is no progress any more."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tide_cli.adaptation.early_stop import FEWEST_SAMPLES, PATIENCE
from tide_cli.errors import TideError
from tide_cli.training.batches import plan_pass
from tide_cli.training.config import TrainingConfig
from tide_cli.training.judge import readable
from tide_cli.training.looks import Looks
from tide_cli.training.material import Material
from tide_cli.training.record import CycleRecord, keys
from tide_cli.training.resident import Resident
from tide_cli.training.team import Taken
from tide_cli.training.worker import NoMemoryError

_REPORT_SECONDS = 2.0


@dataclass(frozen=True)
class Trained:
    """steps: taken, 0 where there was nothing to train on. note: on its end, "" for none."""

    steps: int
    note: str


class TrainingLoop:
    """Trains the resident draft, cycle after cycle.

    report: is given the figures of `progress` events. check: is called between steps and walks, and may raise.
    """

    def __init__(
        self,
        config: TrainingConfig,
        resident: Resident,
        material: Material,
        report: Callable[[dict[str, Any]], None],
        check: Callable[[], None],
    ) -> None:
        self._config, self._resident, self._material = config, resident, material
        self._report, self._check = report, check
        self._rate: float | None = None  # tokens/s of the last cycle

    def run(self, started: float, record: CycleRecord, chance: random.Random) -> Trained:
        """One cycle's steps. started: monotonic second of its begin; chance: draws the batches.

        TideError where training diverged or there is no memory for any step.
        """
        resident, progress = self._resident, self._resident.progress
        looks = self._begin_looks(record)
        tokens, step, reported, ended = 0, 0, started, False
        resident.team.begin(resident.trainer)
        for result, shares in self._steps(chance):
            if not math.isfinite(result.loss):
                resident.spoilt = True
                raise TideError("training diverged: the loss is not a number", remedy="lower learning_rate")
            step, tokens = step + 1, tokens + result.tokens
            record.stepped(shares, result.loss)
            progress.steps += 1
            progress.samples += sum(map(len, shares))
            progress.tokens += result.tokens
            self._material.trained(chain.from_iterable(shares))
            ended = looks.stepped(result.tokens)
            now = time.monotonic()
            budget = now - started if ended else self._seconds(now - started, tokens)
            last = now - started >= budget
            if last or now - reported >= _REPORT_SECONDS:
                reported = now
                self._report(
                    {
                        "step": step,
                        "loss": round(result.loss, 4),
                        "tokens_s": round(tokens / (now - started), 1),
                        "elapsed_s": round(now - started, 3),
                        "budget_s": round(budget, 3),
                        "tokens": tokens,
                    }
                )
            if last:
                self._rate = tokens / (now - started)
                break
        note = self._keep_best(looks, record, step, tokens, ended)
        record.weights = resident.trainer.digest() if step else None
        return Trained(step, note)

    def _seconds(self, elapsed: float, tokens: int) -> float:
        """How long the cycle trains in all, as it looks after so many seconds and tokens."""
        config = self._config
        if config.train_tokens is None:
            return config.cycle_seconds
        return min(config.cycle_seconds, elapsed * config.train_tokens / tokens)

    def _begin_looks(self, record: CycleRecord) -> Looks:
        """None are taken before it is known how many tokens a cycle comes to: there may be too few for looks."""
        config, expected = self._config, 0.0
        if config.early_stop and self._rate is not None:
            expected = min(self._rate * config.cycle_seconds, config.train_tokens or math.inf)
        samples = readable(self._material.hold_back(expected))
        if len(samples) < FEWEST_SAMPLES:  # the others have gone meanwhile, or are unusable
            samples = []
        record.looked_at = keys(sample.info for sample in samples)
        return Looks(config, self._resident.trainer, samples, self._check)

    def _keep_best(self, looks: Looks, record: CycleRecord, step: int, tokens: int, ended: bool) -> str:
        """What is to be said of it."""
        best = looks.keep_best()
        if best is None:
            return ""
        progress = self._resident.progress  # of the weights that are kept
        progress.samples -= sum(map(len, record.steps[best.step :]))
        progress.tokens -= tokens - best.tokens
        record.looks = [(look.step, look.length) for look in looks.found]
        self._material.looked_at()
        note = f"no progress in {PATIENCE} looks, training ended early" if ended else ""
        kept = f"kept the weights of step {best.step} of {step}" if best.step < step else ""
        return "; ".join(filter(None, (note, kept)))

    def _steps(self, chance: random.Random) -> Iterator[Taken]:
        """Optimiser steps, pass after pass over what the spool holds by then; ends when it holds none."""
        config, resident = self._config, self._resident
        while True:
            fresh, old = self._material.training()
            empty, lacking = True, None
            batches = plan_pass(
                fresh, old, replay_share=config.replay_share, batch_tokens=config.batch_tokens, rng=chance
            )
            for first in range(0, len(batches), config.processes):
                self._check()
                resident.saved = False
                try:
                    taken = resident.team.step(resident.trainer, batches[first : first + config.processes])
                except NoMemoryError as error:
                    taken, lacking = None, error
                    print("; ".join(error.lines()), flush=True)
                if taken:
                    empty = False
                    yield taken
            if empty and lacking:
                raise lacking
            if empty:
                return
