"""Looks at the draft while it trains, and the weights of the best one. See adaptation/early_stop.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tide_cli.adaptation.early_stop import best_look, next_look, no_progress
from tide_cli.adaptation.gate import acceptance_length
from tide_cli.spool.samples import Sample
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import BUFFERS, load_draft
from tide_cli.training.judge import walks
from tide_cli.training.trainer import DraftTrainer


@dataclass(frozen=True)
class Look:
    """After so many optimiser steps of the cycle, over so many tokens: the acceptance length."""

    step: int
    tokens: int
    length: float


class Looks:
    """Of one cycle. `found`: in the order in which they were taken; the first is at the weights of the start."""

    def __init__(
        self, config: TrainingConfig, trainer: DraftTrainer, samples: Sequence[Sample], check: Callable[[], None]
    ) -> None:
        """samples: without any there is no look. `check` may raise between them."""
        self._config, self._trainer, self._samples, self._check = config, trainer, samples, check
        self._rows = sum(len(sample.tokens) for sample in samples)
        self._step = self._tokens = 0
        self.found: list[Look] = []
        # In main memory, which a GPU's batch is not short of. The moments are not kept: they are averages over the last
        # steps, which the next cycle's soon outweigh, and twice as large as the weights.
        self._best = {n: m.detach().to("cpu", copy=True) for n, m in trainer.masters().items()} if samples else {}

    def stepped(self, tokens: int) -> bool:
        """Note an optimiser step over so many tokens, and look where one is due. Whether the cycle should end."""
        self._step, self._tokens = self._step + 1, self._tokens + tokens
        if not self._samples or self._tokens < next_look(self._rows, len(self.found)):
            return False
        self._look()
        return no_progress([look.length for look in self.found])

    def keep_best(self) -> Look | None:
        """The cycle's last step is done: go back to the best weights that were looked at, and say which.

        None, and the weights stay as they are, where there was no look.
        """
        if not self.found:
            return None
        if self.found[-1].step < self._step:
            self._look()
        best = self.found[best_look([look.length for look in self.found])]
        if best.step < self._step:
            with torch.no_grad():
                for name, master in self._trainer.masters().items():
                    master.copy_(self._best[name])
            self._trainer.masters_changed()
        self._best = {}
        return best

    @torch.no_grad()
    def _look(self) -> None:
        if not self.found:
            self.found.append(Look(0, 0, self._length(self._best)))
        masters = self._trainer.masters()
        self.found.append(Look(self._step, self._tokens, self._length(masters)))
        if best_look([look.length for look in self.found]) == len(self.found) - 1:
            for name, master in masters.items():
                self._best[name].copy_(master)

    def _length(self, masters: Mapping[str, Tensor]) -> float:
        vocabulary: dict[str, Any] = {name: getattr(self._trainer.draft, name) for name in BUFFERS}
        load_draft(self._trainer.walker, {**masters, **vocabulary})
        return acceptance_length(walks(self._config, self._trainer, self._samples, self._check))
