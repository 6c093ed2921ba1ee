"""The draft in training, which outlives cycles and, by the saved state, the process."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

from tide_cli.drafts.config import other_build
from tide_cli.drafts.describe import read_config
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError
from tide_cli.training.config import TrainingConfig
from tide_cli.training.kept import read_version
from tide_cli.training.material import Material
from tide_cli.training.record import keep_state, numbered
from tide_cli.training.state import STATE_FILE, Progress, load_state, read_progress, save_state
from tide_cli.training.team import Alone, Team
from tide_cli.training.trainer import DraftTrainer


class Resident:
    """The trainer, the processes that train with it, and how far it has come.

    The weights are given up for the served draft's when another version is served than the one they descend from.
    progress: see there. spoilt: they are no numbers any more. saved: the state on the disk is that of the trainer.
    """

    def __init__(self, config: TrainingConfig, store: DraftStore, material: Material) -> None:
        """Load everything. TideError where the store is empty or target and draft do not fit."""
        self._config, self._store = config, store
        saved = read_progress(config.state)
        known = store.versions()
        if not known:
            raise TideError(f"there is no draft in {config.drafts}", remedy="`tide up` makes the first one")
        start = saved.parent if saved and saved.parent in known else known[-1]
        draft = store.path(start)
        self.team = Team(config, draft, material.offer) if config.processes > 1 else Alone()
        self._trainer: DraftTrainer | None = DraftTrainer(config, draft)
        self.team.meet()
        resumed = saved is not None and saved.parent == start and load_state(config.state, self.trainer)
        self.progress = saved if saved and resumed else Progress(parent=start)
        # those that were numbered before the state was lost stay the older ones
        self.progress.cycle = max(saved.cycle if saved else 0, *numbered(config.state), 0)
        self.spoilt, self.saved = False, resumed
        self._start: tuple[int, int] | None = None

    @property
    def trainer(self) -> DraftTrainer:
        """The resident one; one of another make is made here, again where that failed before. TideError."""
        if self._trainer is None:
            self._trainer = DraftTrainer(self._config, self._path(self.progress.parent))
        return self._trainer

    def take_up(self, served: int) -> dict[str, Any]:
        """The served version's tensors; the weights in training are replaced by them unless they descend from them, and
        by those that were named for this. TideError where it is damaged.
        """
        tensors = read_version(self._store, served)
        if served != self.progress.parent or self.spoilt:
            self.restart_from(served, tensors)
        start, self._start = self._start, None
        if start is not None and start[0] == served:
            with suppress(TideError):  # it may be gone by now
                self.trainer.restart_from(read_version(self._store, start[1]))
                self.progress = Progress(parent=served, cycle=self.progress.cycle, begun=start[1])
        return tensors

    def start_next_from(self, version: int | None, served: int) -> None:
        """The next cycle, where it is against `served`, begins with the weights of a kept version of the same make.

        None takes that back.
        """
        self._start = None if version is None else (served, version)

    def restart_from(self, version: int, tensors: dict[str, Any]) -> None:
        """Go on from a version with these tensors, with the optimiser as new."""
        if self.is_of_this_make(version, tensors):
            self.trainer.restart_from(tensors)
        else:  # one of them was imported, and has another vocabulary, layer or rotary embedding
            self._trainer = None  # gone before the other is made: there may not be room for both
            gc.collect()
        self.spoilt = False
        self.progress = Progress(parent=version, cycle=self.progress.cycle)
        _ = self.trainer  # made now, and not in the middle of a cycle

    def is_of_this_make(self, version: int, tensors: dict[str, Any]) -> bool:
        """Whether there is a trainer, and as its draft these tensors would be what they are in the engine."""
        if self._trainer is None or other_build(self._trainer.draft_config, read_config(self._path(version))):
            return False
        return all(tensors[name].shape == m.shape for name, m in self._trainer.masters().items() if name in tensors)

    def keep_start(self) -> str:
        """Of the cycle that begins, for its record: where the weights come from. Keeps the saved state as its start."""
        cycle, folder = self.progress.cycle, self._config.state
        if not self.progress.steps:
            return "version"
        return "state" if self.saved and keep_state(folder, cycle, folder / STATE_FILE) else "lost"

    def save(self) -> None:
        """Keep masters, optimiser and progress for the next life of the process, unless they are spoilt."""
        if self.spoilt or self._trainer is None:
            return
        save_state(self._config.state, self.trainer, self.progress)
        self.saved = True

    def _path(self, version: int) -> Path:
        return self._store.path(version)
