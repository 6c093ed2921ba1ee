"""One training cycle: train for its time, judge the result, publish it or not."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tide_cli.adaptation.gate import GateDecision
from tide_cli.adaptation.pool import PoolDecision
from tide_cli.adaptation.start import worth_starting_from
from tide_cli.drafts.manifest import version_name
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocab_map_hash, vocabulary_ids
from tide_cli.training.config import TrainingConfig
from tide_cli.training.coverage import follow_vocabulary
from tide_cli.training.judge import choose as judge_pool
from tide_cli.training.judge import held_out, judge, rounded
from tide_cli.training.kept import ReadDraft, drafts_to_walk, read_version
from tide_cli.training.material import Material
from tide_cli.training.record import CycleRecord, keys
from tide_cli.training.resident import Resident
from tide_cli.training.team import Alone, Team
from tide_cli.training.trainer import DraftTrainer
from tide_cli.training.training_loop import TrainingLoop

_CANDIDATE = "candidate-"

Emit = Callable[[dict[str, Any]], None]


class Cancelled(Exception):
    """A command ended the cycle early; what was learned so far is kept."""


class Cycles:
    """Runs cycles one after another around a resident trainer.

    The weights in training survive a cycle that did not pass and a restart of the process. They are given up for
    the served draft's when another version is served than the one they descend from, or when they are clearly worse.
    """

    def __init__(self, config: TrainingConfig, emit: Emit, check: Callable[[], None]) -> None:
        """Load everything. `check` is called between optimiser steps and between walks, and raises Cancelled.

        TideError where the draft store is empty or target and draft do not fit.
        """
        self.config, self._emit, self._check = config, emit, check
        self._store = DraftStore(config.drafts)
        self._material = Material(config)
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in config.state.glob(_CANDIDATE + "*"):  # of a process that was killed while it published
            shutil.rmtree(leftover, ignore_errors=True)
        self._resident = Resident(config, self._store, self._material)
        self._loop = TrainingLoop(config, self._resident, self._material, self._emit_progress, check)
        self._coverage: float | None = None  # of the vocabulary in training, over the recent tokens
        self._random = random.Random()

    @property
    def trainer(self) -> DraftTrainer:
        """See Resident. TideError."""
        return self._resident.trainer

    @property
    def team(self) -> Team | Alone:
        """The processes that train."""
        return self._resident.team

    def run(self, served: int) -> int | None:
        """One cycle against the served version; the number of the version it published, or None.

        Emits progress, gate, published and cycle_end events. TideError for a broken version or a full disk; the cycle
        has then ended without a cycle_end event.
        """
        started, resident = time.monotonic(), self._resident
        resident.progress.cycle += 1
        self._random.seed(f"{self.config.seed}/{resident.progress.cycle}")
        published, reason, notes = None, "cancelled", []
        served_tensors = resident.take_up(served)
        record = self._begin_record(served)
        try:
            self._follow_vocabulary(served, served_tensors)
            same = torch.equal(self.trainer.vocabulary, vocabulary_ids(served_tensors["d2t"]))
            if not same or record.begun is not None:
                record.vocabulary = self.trainer.vocabulary.tolist()
            trained = self._loop.run(started, record, self._random)
            if not trained.steps:
                reason = "there is no sample to train on"
            else:
                newest, old = held_out(self._material, self._store.manifest(served).created)
                record.newest, record.old = (keys(sample.info for sample in chosen) for chosen in (newest, old))
                verdict = judge(self.config, self.trainer, newest, old, served_tensors, self._check)
                decision, reason = verdict.decision, verdict.decision.reason
                record.gate = figures = self._gate_figures(decision) | {"passed": decision.passed}
                self._emit_cycle("gate", **figures, decided_from=verdict.decided_from)
                if decision.passed:
                    published = self._publish(served, decision)
                elif verdict.clearly_worse:
                    resident.restart_from(served, served_tensors)
                    notes.append("going back to the served draft")
            reason = "; ".join(filter(None, [reason, *notes, trained.note, self._material.left_out()]))
        except Cancelled:
            pass
        self.save()
        if record.steps:
            record.write(self.config.state)
        seconds = round(time.monotonic() - started, 3)
        looks = [{"step": step, "al": round(length, 4)} for step, length in record.looks]
        self._emit_cycle("cycle_end", seconds=seconds, published=published, reason=reason, looks=looks)
        return published

    def choose(
        self,
        served: int,
        among: Sequence[int] | None = None,
        figures: Mapping[str, Mapping[str, float]] | None = None,
    ) -> int | None:
        """The kept version that suits the newest samples better than the served one, None where none does.

        among: the versions to be tried, None for those that promise to differ. figures: number of a version to its
        acceptance length by condition, where some are known. Nothing is trained. Emits a pool event.
        TideError where the served version is damaged; another one that is damaged is left out.
        """
        version, reason, walked = None, "cancelled", []
        try:
            tensors = read_version(self._store, served)
            if not self._resident.is_of_this_make(served, tensors):
                self._resident.restart_from(served, tensors)
            drafts = drafts_to_walk(self._store, served, tensors, among, figures or {})
            decision = judge_pool(self.config, self.trainer, self._material, drafts, served, self._check)
            version, reason = decision.version, decision.reason
            walked = [{"version": kept} | rounded(gate) for kept, gate in decision.gates.items()]
            if among is None:
                start = None if version is not None else self._better_start(served, drafts, decision)
                self._resident.start_next_from(start, served)
                if start is not None:
                    reason += f"; training begins from {version_name(start)}"
        except Cancelled:
            pass
        self._emit({"event": "pool", "version": version, "served": served, "reason": reason, "walked": walked})
        return version

    def _better_start(self, served: int, drafts: dict[int, ReadDraft], decision: PoolDecision) -> int | None:
        """Of versions that are not to be served, the one that is a better start than what training would go on with."""
        version, progress = worth_starting_from(decision.gates), self._resident.progress
        if version is None or progress.parent != served or not progress.tokens:
            return version
        # what has been learned since the served version, and no gate has passed yet, may be better still
        pair = {served: self.trainer.tensors, version: drafts[version]}
        compared = judge_pool(self.config, self.trainer, self._material, pair, served, self._check)
        return worth_starting_from(compared.gates)

    def save(self) -> None:
        """Keep what was learned and counted for the next life of the process."""
        self._material.count_trained()
        self._resident.save()

    def _begin_record(self, served: int) -> CycleRecord:
        start, progress = self._resident.keep_start(), self._resident.progress
        record = CycleRecord(progress.cycle, time.time(), served, start, json.loads(self.config.to_json()))
        record.begun = progress.begun if start == "version" else None
        return record

    def _follow_vocabulary(self, served: int, tensors: dict[str, Any]) -> None:
        """And say what the served vocabulary covers of the recent traffic."""
        if (found := follow_vocabulary(self.config, self.trainer, self._material, tensors)) is not None:
            self._coverage = found.candidate
            self._emit_cycle(
                "coverage",
                version=served,
                served=round(found.served, 4),
                candidate=round(found.candidate, 4),
                wanted=self.config.vocab_coverage,
                changed=found.changed,
                tokens=found.tokens,
            )

    def _publish(self, served: int, decision: GateDecision) -> int:
        progress = self._resident.progress
        with tempfile.TemporaryDirectory(prefix=_CANDIDATE, dir=self.config.state) as folder:
            self.trainer.export(Path(folder))
            version = self._store.publish(
                Path(folder),
                parent=served,
                target=self.config.target_name,
                target_revision=self.config.target_revision,
                vocab_map_hash=vocab_map_hash(self.trainer.draft.d2t),
                samples=progress.samples,
                tokens=progress.tokens,
                gate=self._gate_figures(decision),
            )
        progress.parent, progress.samples, progress.tokens, progress.begun = version, 0, 0, None
        print(f"published {version_name(version)} from {version_name(served)}: {decision.reason}", flush=True)
        self._emit_cycle("published", version=version, parent=served)
        return version

    def _gate_figures(self, decision: GateDecision) -> dict[str, Any]:
        covered = None if self._coverage is None else round(self._coverage, 4)
        return rounded(decision) | {"coverage": covered}

    def _emit_progress(self, figures: dict[str, Any]) -> None:
        self._emit_cycle("progress", **figures)

    def _emit_cycle(self, event: str, **values: Any) -> None:
        self._emit({"event": event, "cycle": self._resident.progress.cycle, **values})
