"""One training cycle: train for its time, judge the result, publish it or not."""

from __future__ import annotations

import gc
import json
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from tide_cli.adaptation.gate import GateDecision
from tide_cli.adaptation.pool import Kept, walk_limit, walk_order
from tide_cli.adaptation.vocabulary import better_vocabulary, coverage
from tide_cli.drafts.manifest import version_name
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import (
    check_draft,
    check_vocabulary_map,
    draft_kinds,
    read_draft,
    vocab_map_hash,
    vocabulary_ids,
)
from tide_cli.errors import TideError
from tide_cli.training.batches import plan_pass
from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import special_tokens
from tide_cli.training.judge import choose as judge_pool
from tide_cli.training.judge import held_out, judge, rounded
from tide_cli.training.material import Material
from tide_cli.training.record import CycleRecord, keep_state, keys, numbered
from tide_cli.training.state import STATE_FILE, Progress, load_state, read_progress, save_state
from tide_cli.training.team import Alone, Taken, Team
from tide_cli.training.trainer import DraftTrainer
from tide_cli.training.worker import NoMemoryError

_REPORT_SECONDS = 2.0
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
        saved = read_progress(config.state)
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in config.state.glob(_CANDIDATE + "*"):  # of a process that was killed while it published
            shutil.rmtree(leftover, ignore_errors=True)
        known = self._store.versions()
        if not known:
            raise TideError(f"there is no draft in {config.drafts}", remedy="`tide up` makes the first one")
        start = saved.parent if saved and saved.parent in known else known[-1]
        draft = self._store.path(start)
        self.team = Team(config, draft, self._material.offer) if config.processes > 1 else Alone()
        self._trainer: DraftTrainer | None = DraftTrainer(config, draft)
        self.team.meet()
        resumed = saved is not None and saved.parent == start and load_state(config.state, self.trainer)
        self.progress = saved if saved and resumed else Progress(parent=start)
        # those that were numbered before the state was lost stay the older ones
        self.progress.cycle = max(saved.cycle if saved else 0, *numbered(config.state), 0)
        self._diverged = False  # the weights in training are spoilt
        self._coverage: float | None = None  # of the vocabulary in training, over the recent tokens
        self._saved = resumed  # the state on the disk is that of the trainer
        self._random = random.Random()

    @property
    def trainer(self) -> DraftTrainer:
        """The resident one; one of another make is made here, again where that failed before. TideError."""
        if self._trainer is None:
            self._trainer = DraftTrainer(self.config, self._store.path(self.progress.parent))
        return self._trainer

    def run(self, served: int) -> int | None:
        """One cycle against the served version; the number of the version it published, or None.

        Emits progress, gate, published and cycle_end events. TideError for a broken version or a full disk; the cycle
        has then ended without a cycle_end event.
        """
        started = time.monotonic()
        self.progress.cycle += 1
        self._random.seed(f"{self.config.seed}/{self.progress.cycle}")
        published, reason = None, "cancelled"
        served_tensors = self._take_up(served)
        record = self._begin_record(served)
        try:
            self._follow_vocabulary(served, served_tensors)
            if not torch.equal(self.trainer.vocabulary, vocabulary_ids(served_tensors["d2t"])):
                record.vocabulary = self.trainer.vocabulary.tolist()
            if not self._train(started, record):
                reason = "there is no sample to train on"
            else:
                newest, old = held_out(self._material, self._store.manifest(served).created)
                record.newest, record.old = (keys(sample.info for sample in chosen) for chosen in (newest, old))
                verdict = judge(self.config, self.trainer, newest, old, served_tensors, self._check)
                decision, reason = verdict.decision, verdict.decision.reason
                record.gate = self._gate_figures(decision) | {"passed": decision.passed}
                self._emit_cycle("gate", **self._gate_figures(decision), passed=decision.passed)
                if decision.passed:
                    published = self._publish(served, decision)
                elif verdict.clearly_worse:
                    self._restart_from(served, served_tensors)
                    reason += "; going back to the served draft"
            if left_out := self._material.left_out():
                reason += f"; {left_out}"
        except Cancelled:
            pass
        self.save()
        if record.steps:
            record.write(self.config.state)
        seconds = round(time.monotonic() - started, 3)
        self._emit_cycle("cycle_end", seconds=seconds, published=published, reason=reason)
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
            drafts = self._drafts(served, among, figures or {})
            if not self._is_of_this_make(drafts[served]):
                self._restart_from(served, drafts[served])
            decision = judge_pool(self.config, self.trainer, self._material, drafts, served, self._check)
            version, reason = decision.version, decision.reason
            walked = [{"version": kept} | rounded(gate) for kept, gate in decision.gates.items()]
        except Cancelled:
            pass
        self._emit({"event": "pool", "version": version, "served": served, "reason": reason, "walked": walked})
        return version

    def _drafts(
        self, served: int, among: Sequence[int] | None, figures: Mapping[str, Mapping[str, float]]
    ) -> dict[int, dict[str, Any]]:
        """The served version and the kept ones that are to be walked.

        Those that are marked bad, and what the engine would refuse, are left out.
        """
        drafts = {served: self._tensors(served)}
        expected = draft_kinds(drafts[served])
        if among is None:
            kept = []
            for version in self._store.versions():
                with suppress(TideError):
                    kept.append(Kept(version, self._store.manifest(version).parent, figures.get(str(version), {})))
            limit = walk_limit(self._store.size(served))
            among = walk_order(kept, served, limit, self._store.marks().bad).versions
        for version in among:
            with suppress(TideError):
                tensors = self._tensors(version)
                check_draft(tensors, expected)
                check_vocabulary_map(tensors["d2t"], tensors["t2d"])
                drafts[version] = tensors
        return drafts

    def save(self) -> None:
        """Keep masters, optimiser and progress for the next life of the process, unless they are spoilt."""
        self._material.count_trained()
        if self._diverged or self._trainer is None:
            return
        save_state(self.config.state, self.trainer, self.progress)
        self._saved = True

    def _begin_record(self, served: int) -> CycleRecord:
        """Of the cycle that begins; it keeps the trainer's state where that is more than a version's weights."""
        cycle, folder = self.progress.cycle, self.config.state
        start = "version"
        if self.progress.steps:
            start = "state" if self._saved and keep_state(folder, cycle, folder / STATE_FILE) else "lost"
        return CycleRecord(cycle, time.time(), served, start, json.loads(self.config.to_json()))

    def _take_up(self, served: int) -> dict[str, Any]:
        """The served version's tensors; the weights in training are replaced by them unless they descend from them."""
        tensors = self._tensors(served)
        if served != self.progress.parent or self._diverged:
            self._restart_from(served, tensors)
        return tensors

    def _follow_vocabulary(self, version: int, served: dict[str, Any]) -> None:
        """Say what the served vocabulary covers of the recent traffic; train on with a better one where it matters."""
        trainer, config = self.trainer, self.config
        recent, old = self._material.token_counts(len(trainer.draft.t2d))
        now = coverage(vocabulary_ids(served["d2t"]).numpy(), recent)
        if now is None:
            return
        special = special_tokens(config.target) if now < config.vocab_coverage else []
        share, before = config.replay_share if old.any() else 0.0, trainer.vocabulary
        better = better_vocabulary(
            before.numpy(), recent, old, old_share=share, special=special, wanted=config.vocab_coverage
        )
        if better is not None:
            trainer.change_vocabulary(torch.from_numpy(better))
        self._coverage = coverage(trainer.vocabulary.numpy(), recent)
        self._emit_cycle(
            "coverage",
            version=version,
            served=round(now, 4),
            candidate=round(self._coverage or 0.0, 4),
            wanted=config.vocab_coverage,
            changed=0 if better is None else len(set(better.tolist()) - set(before.tolist())),
            tokens=int(recent.sum()),
        )

    def _tensors(self, version: int) -> dict[str, Any]:
        self._store.verify(version)
        return read_draft(self._store.path(version))

    def _restart_from(self, version: int, tensors: dict[str, Any]) -> None:
        if self._is_of_this_make(tensors):
            self.trainer.restart_from(tensors)
        else:  # one of them was imported, and has another vocabulary or layer
            self._trainer = None  # gone before the other is made: there may not be room for both
            gc.collect()
        self._diverged = False
        self.progress = Progress(parent=version, cycle=self.progress.cycle)
        _ = self.trainer  # made now, and not in the middle of a cycle

    def _is_of_this_make(self, tensors: dict[str, Any]) -> bool:
        """Whether there is a trainer, and it could hold a draft of these tensors."""
        masters = self._trainer.masters() if self._trainer else {}
        alike = all(tensors[name].shape == m.shape for name, m in masters.items() if name in tensors)
        return bool(masters) and alike

    def _train(self, started: float, record: CycleRecord) -> bool:
        """Optimiser steps until the cycle's time is over; False where there was nothing to train on."""
        tokens, step, reported = 0, 0, started
        self.team.begin(self.trainer)
        for result, shares in self._steps():
            if not math.isfinite(result.loss):
                self._diverged = True
                raise TideError("training diverged: the loss is not a number", remedy="lower learning_rate")
            step, tokens = step + 1, tokens + result.tokens
            record.stepped(shares, result.loss)
            self.progress.steps += 1
            self.progress.samples += sum(map(len, shares))
            self.progress.tokens += result.tokens
            self._material.trained(chain.from_iterable(shares))
            now = time.monotonic()
            last = now - started >= self.config.cycle_seconds
            if last or now - reported >= _REPORT_SECONDS:
                reported = now
                self._emit_cycle(
                    "progress",
                    step=step,
                    loss=round(result.loss, 4),
                    tokens_s=round(tokens / (now - started), 1),
                    elapsed_s=round(now - started, 3),
                    budget_s=self.config.cycle_seconds,
                    tokens=tokens,
                )
            if last:
                break
        record.weights = self.trainer.digest() if step else None
        return step > 0

    def _steps(self) -> Iterator[Taken]:
        """Optimiser steps, pass after pass over what the spool holds by then; ends when it holds none."""
        config = self.config
        while True:
            fresh, old = self._material.training()
            empty, lacking = True, None
            batches = plan_pass(
                fresh, old, replay_share=config.replay_share, batch_tokens=config.batch_tokens, rng=self._random
            )
            for first in range(0, len(batches), config.processes):
                self._check()
                self._saved = False
                try:
                    taken = self.team.step(self.trainer, batches[first : first + config.processes])
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

    def _publish(self, served: int, decision: GateDecision) -> int:
        with tempfile.TemporaryDirectory(prefix=_CANDIDATE, dir=self.config.state) as folder:
            self.trainer.export(Path(folder))
            version = self._store.publish(
                Path(folder),
                parent=served,
                target=self.config.target_name,
                target_revision=self.config.target_revision,
                vocab_map_hash=vocab_map_hash(self.trainer.draft.d2t),
                samples=self.progress.samples,
                tokens=self.progress.tokens,
                gate=self._gate_figures(decision),
            )
        self.progress.parent, self.progress.samples, self.progress.tokens = version, 0, 0
        print(f"published {version_name(version)} from {version_name(served)}: {decision.reason}", flush=True)
        self._emit_cycle("published", version=version, parent=served)
        return version

    def _gate_figures(self, decision: GateDecision) -> dict[str, Any]:
        covered = None if self._coverage is None else round(self._coverage, 4)
        return rounded(decision) | {"coverage": covered}

    def _emit_cycle(self, event: str, **values: Any) -> None:
        self._emit({"event": event, "cycle": self.progress.cycle, **values})
