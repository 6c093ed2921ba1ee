from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_target import Target

from tide_cli.drafts.tensors import check_vocabulary_map
from tide_cli.training.config import TrainingConfig
from tide_cli.training.state import Progress, load_state, read_progress, save_state
from tide_cli.training.trainer import DraftTrainer


def test_a_restart_goes_on_as_if_nothing_had_happened(target: Target, config: TrainingConfig, day_zero: Path) -> None:
    samples = target.samples(4)
    first = DraftTrainer(config, day_zero)
    for _ in range(15):
        first.step(samples)
    progress = Progress(parent=0, cycle=3, steps=15, samples=60, tokens=999)
    save_state(config.state, first, progress)
    second = DraftTrainer(config, day_zero)
    assert load_state(config.state, second)
    assert read_progress(config.state) == progress
    for trainer in (first, second):
        trainer.step(samples)
    for name, tensor in first.tensors().items():
        assert torch.equal(second.tensors()[name], tensor), name
    assert second.optimizer.get_learning_rate() == pytest.approx(config.learning_rate)


def test_a_changed_vocabulary_goes_on_with_what_was_learned(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    samples = target.samples(4)
    trainer = DraftTrainer(config, day_zero)
    for _ in range(12):
        trainer.step(samples)
    before, ids = trainer.tensors(), trainer.vocabulary
    outside = torch.tensor(sorted(set(range(300)) - set(ids.tolist())))
    moments = {name: trainer.optimizer.optimizer.state[master] for name, master in trainer.masters().items()}
    known = moments["lm_head.weight"]["exp_avg"].clone()
    changed = torch.cat([ids[:4], ids[14:], outside[:10]]).sort().values  # ten tokens give way to ten others
    trainer.change_vocabulary(changed)

    after = trainer.tensors()
    check_vocabulary_map(after["d2t"], after["t2d"])
    assert torch.equal(trainer.vocabulary, changed)
    own = target.model.lm_head.weight.to(trainer.compute_dtype)
    for place, token in enumerate(changed.tolist()):
        was = (ids == token).nonzero().flatten()
        row, moment = after["lm_head.weight"][place], moments["lm_head.weight"]["exp_avg"][place]
        assert torch.equal(row, before["lm_head.weight"][was[0]] if len(was) else own[token].to(row.dtype))
        assert torch.equal(moment, known[was[0]] if len(was) else torch.zeros_like(moment))
    for name in before.keys() - {"lm_head.weight", "d2t", "t2d"}:
        assert torch.equal(after[name], before[name]), name
    assert torch.equal(trainer.draft.lm_head.weight, after["lm_head.weight"].to(trainer.compute_dtype))

    save_state(config.state, trainer, Progress(parent=0))
    second = DraftTrainer(config, day_zero)
    assert load_state(config.state, second)
    losses = [one.step(samples).loss for one in (trainer, second)]
    assert losses[0] == losses[1]
    assert torch.equal(second.vocabulary, changed)
    second.restart_from(before)  # the map goes back, and the teacher with it
    fresh = DraftTrainer(config, day_zero)
    fresh.restart_from(before)
    assert second.step(samples).loss == fresh.step(samples).loss


def test_state_of_another_draft_or_a_damaged_one_is_refused(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    trainer = DraftTrainer(config, day_zero)
    trainer.step(target.samples(2))
    before = trainer.tensors()
    assert not load_state(config.state, trainer)
    assert read_progress(config.state) is None
    save_state(config.state, trainer, Progress(parent=0))
    file = config.state / "trainer.safetensors"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:-100])
    assert not load_state(config.state, trainer)
    assert read_progress(config.state) is None
    assert all(torch.equal(trainer.tensors()[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize(
    "damage",
    [
        lambda tensors: tensors["d2t"].add_(10**6),
        lambda tensors: tensors["d2t"].sub_(400),
        lambda tensors: tensors["d2t"].sub_(torch.arange(len(tensors["d2t"]))),  # all the same
        lambda tensors: tensors["master.fc.weight"][3, 5].fill_(float("nan")),
        lambda tensors: tensors["exp_avg.fc.weight"][3, 5].fill_(float("inf")),
        lambda tensors: tensors.update({"master.fc.weight": tensors["master.fc.weight"].double()}),
        lambda tensors: tensors.update(d2t=tensors["d2t"].float()),
    ],
)
def test_state_with_values_that_cannot_be_is_refused(
    target: Target, config: TrainingConfig, day_zero: Path, damage: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    trainer = DraftTrainer(config, day_zero)
    trainer.step(target.samples(2))
    save_state(config.state, trainer, Progress(parent=0))
    before, file = trainer.tensors(), config.state / "trainer.safetensors"
    with safe_open(file, "pt") as opened:
        tensors, metadata = {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata()  # noqa: SIM118
    damage(tensors)
    save_file(tensors, file, metadata=metadata)
    assert not load_state(config.state, trainer)
    assert all(torch.equal(trainer.tensors()[name], tensor) for name, tensor in before.items())


def test_a_batch_of_hardly_any_rows_is_a_step(target: Target, config: TrainingConfig, day_zero: Path) -> None:
    trainer = DraftTrainer(replace(config, ttt_length=7), day_zero)
    for rows in (1, 2, 3):
        assert trainer.step([target.sample(rows, [5], rows)]).tokens == rows


def test_bfloat16_publication_keeps_fp32_masters(target: Target, config: TrainingConfig, day_zero: Path) -> None:
    trainer = DraftTrainer(replace(config, dtype="bfloat16"), day_zero)
    trainer.step(target.samples(2))
    weight = trainer.tensors()["fc.weight"]
    assert weight.dtype == torch.float32
    assert not torch.equal(weight, weight.bfloat16().float())
