"""A recorded cycle once more: the same samples in the same order from the same weights, and what differs in the end.

It reads spool, drafts and record and writes nothing, so it may run beside an appliance.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import read_draft
from tide_cli.errors import TideError
from tide_cli.printable import many
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, kept_samples
from tide_cli.spool.samples import Sample
from tide_cli.training.config import TrainingConfig
from tide_cli.training.judge import judge, rounded
from tide_cli.training.looks import Looks
from tide_cli.training.record import CycleRecord, Key, recorded, state_file
from tide_cli.training.shares import step_in_turns
from tide_cli.training.state import load_state_file
from tide_cli.training.trainer import DraftTrainer
from tide_cli.training.worker import Events

_SAME = 1e-3  # largest relative difference of a loss that rounding on another machine explains
_LEAST = 1e-6  # a smaller loss is none: nothing in the batch counted


def run(folders: dict[str, Path], cycle: int, seed: int | None, descriptor: int) -> int:
    """`replay` as a process: events as JSON lines, `progress`, then `replayed` or `error`. Returns the exit code.

    folders: 'state', 'spool' and 'drafts' of today.
    """
    events = Events(descriptor)
    try:
        record = CycleRecord.read(folders["state"], cycle)
        config = replace(TrainingConfig.from_json(json.dumps(record.config)), **folders)
        torch.set_num_threads(config.threads)
        found = replay(config, record, seed, lambda done, n: events({"event": "progress", "step": done, "steps": n}))
    except TideError as error:
        events({"event": "error", "what": error.what, "why": error.why, "remedy": error.remedy})
        return int(error.exit_code)
    events({"event": "replayed", **found})
    return 0


Read = Callable[[], Sample | None]


def replay(config: TrainingConfig, record: CycleRecord, seed: int | None, tick: Callable[[int, int], None]) -> dict:
    """Run the cycle again; config: the recorded one, with the folders of today. tick: called with (done, total) steps.

    seed: another order of the batches and another seed of the gate; None: as recorded. Returns `recorded` and
    `replayed`, each with the last loss, the step whose weights were kept, their digest and the gate's figures;
    loss_difference: the largest relative one of a step; identical: the weights are the same bit for bit; same: the
    losses differ by rounding alone and the verdict is the same. These are None with another seed, `identical` also for
    a cycle that was cancelled.
    TideError where something that went in is gone.
    """
    with closing(SpoolReader.open(config.spool)) as reader:
        stored = _stored(config, reader)
        if missing := record.samples() - stored.keys():
            why = f"{len(missing)} of its {many(len(record.samples()), 'sample')} are no longer stored"
            raise _gone(config, record, stored, why)
        trainer, served = _begin(config, record, stored)
        steps = list(zip(record.steps, record.shares or [[len(batch)] for batch in record.steps], strict=True))
        if seed is not None:
            random.Random(seed).shuffle(steps)
        losses = []
        looks = Looks(config, trainer, _samples(config, record, stored, record.looked_at), lambda: None)
        for done, (batch, shares) in enumerate(steps, start=1):
            samples = iter(_samples(config, record, stored, batch))
            parts = [list(islice(samples, count)) for count in shares]
            step = step_in_turns(trainer, parts) if record.shares else trainer.step(*parts)
            losses.append(step.loss)
            looks.stepped(step.tokens)
            tick(done, len(steps))
        best = looks.keep_best() if record.weights is not None else None
        weights, gate = trainer.digest(), None
        if record.gate is not None:
            newest, old = (_samples(config, record, stored, chosen) for chosen in (record.newest, record.old))
            seeded = config if seed is None else replace(config, seed=seed)
            decision = judge(seeded, trainer, newest, old, served, lambda: None).decision
            gate = rounded(decision) | {"passed": decision.passed}
    pairs = zip(losses, record.losses, strict=True)
    difference = max(abs(now - then) / max(abs(then), _LEAST) for now, then in pairs)
    verdicts = [None if found is None else found["passed"] for found in (gate, record.gate)]
    return {
        "cycle": record.cycle,
        "seed": config.seed if seed is None else seed,
        "steps": len(steps),
        "recorded": {"loss": record.losses[-1], "kept": record.kept, "weights": record.weights, "gate": record.gate},
        "replayed": {"loss": losses[-1], "kept": best.step if best else len(steps), "weights": weights, "gate": gate},
        "loss_difference": difference if seed is None else None,
        "identical": weights == record.weights if seed is None and record.weights else None,
        "same": difference <= _SAME and verdicts[0] == verdicts[1] if seed is None else None,
    }


def _stored(config: TrainingConfig, reader: SpoolReader) -> dict[Key, Read]:
    """How to read each sample that is there: in the ring, else in the reservoir."""
    kept = {(one.info.id, one.info.checksum): one.read for one in kept_samples(config.spool / RESERVOIR_FOLDER)}
    return kept | {(info.id, info.checksum): lambda info=info: reader.read(info) for info in reader.samples()}


def _samples(
    config: TrainingConfig, record: CycleRecord, stored: dict[Key, Read], chosen: Sequence[Key]
) -> list[Sample]:
    samples = [sample for key in chosen if (sample := stored[key]()) is not None]
    if len(samples) < len(chosen):
        raise _gone(config, record, stored, "one of its samples was overwritten meanwhile")
    return samples


def _begin(config: TrainingConfig, record: CycleRecord, stored: Collection[Key]) -> tuple[DraftTrainer, dict[str, Any]]:
    """A trainer as it was when the cycle began, and the tensors of the version that was served."""
    store, state = DraftStore(config.drafts), state_file(config.state, record.cycle)
    begun = record.served if record.begun is None else record.begun
    for version in {record.served, begun}:
        store.verify(version)
    trainer = DraftTrainer(config, store.path(begun))
    if record.start != "version" and not load_state_file(state, trainer):
        raise _gone(config, record, stored, "the weights that it began with are kept for the newest cycles alone")
    if record.vocabulary is not None and record.vocabulary != trainer.vocabulary.tolist():
        trainer.change_vocabulary(torch.tensor(record.vocabulary))
    return trainer, read_draft(store.path(record.served))


def _gone(config: TrainingConfig, record: CycleRecord, stored: Collection[Key], why: str) -> TideError:
    others = [str(cycle) for cycle in recorded(config.state) if cycle != record.cycle and _whole(config, cycle, stored)]
    remedy = f"replay another one: {', '.join(others)}" if others else "no recorded one can be; the next cycle can"
    return TideError(f"cycle {record.cycle} cannot be run again", why=why, remedy=remedy)


def _whole(config: TrainingConfig, cycle: int, stored: Collection[Key]) -> bool:
    """Whether all that went into the cycle is still there."""
    try:
        record = CycleRecord.read(config.state, cycle)
    except TideError:
        return False
    begun = record.start == "version" or state_file(config.state, cycle).exists()
    versions = {record.served, record.served if record.begun is None else record.begun}
    return begun and versions <= set(DraftStore(config.drafts).versions()) and record.samples() <= set(stored)
