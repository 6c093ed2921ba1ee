"""What the trainer finds, counts and forgets."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from tide_cli.spool.erase import Which, erase_offline
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, Reservoir, erase_kept
from tide_cli.spool.writer import SpoolWriter
from tide_cli.training.config import TrainingConfig
from tide_cli.training.material import Material


def store(config: TrainingConfig, count: int) -> None:
    layout = RowLayout(hidden_size=8, target="tiny")
    writer = SpoolWriter.open(config.spool, layout, 2**20, run="r", max_sample_tokens=64, held_out_share=0)
    for number in range(count):
        writer.put_rows("r", 0, torch.randn(9, 24), torch.randn(9, 8))
        tokens = [number, *range(9)]
        writer.finish("r", tokens, 3, draft_version=0, verify_steps=1, accepted_tokens=0)
    writer.close()


def test_what_was_trained_on_is_counted(config: TrainingConfig) -> None:
    store(config, 3)
    material = Material(config)
    fresh, _ = material.training()
    samples = [ref.read().info for ref in fresh]
    material.trained(samples[:2])
    material.trained(samples[:1])
    material.count_trained()
    material.count_trained()
    times = {info.id: info.times_trained for info in SpoolReader.open(config.spool).samples()}
    assert times == {3: 2, 2: 1, 1: 0}


def test_tokens_are_counted_without_their_states(config: TrainingConfig) -> None:
    store(config, 3)  # each says 2, 3, 4, … 7 after a prompt of three tokens; the last token has no row
    material = Material(config)
    recent, old = material.token_counts(7)
    assert recent.tolist() == [0, 0, 3, 3, 3, 3, 3]  # 7 is none of the seven tokens
    assert old.sum() == 0
    fresh, _ = material.training()
    assert all(ref.read() for ref in fresh)  # which keeps them in the reservoir
    kept = Reservoir(config.spool / RESERVOIR_FOLDER, config.reservoir_size, config.seed).samples()
    assert [one.generated_tokens().tolist() for one in kept] == [[2, 3, 4, 5, 6, 7]] * 3
    kept[0].path.unlink()
    assert kept[0].generated_tokens() is None


def test_what_is_erased_while_it_is_read_is_not_kept(config: TrainingConfig, monkeypatch) -> None:
    store(config, 2)
    material = Material(config)
    fresh, _ = material.training()
    assert fresh[0].read()
    offer = Reservoir.offer

    def erase_first(reservoir: Reservoir, sample) -> bool:
        erase_offline(config.spool, Which(everything=True))
        erase_kept(config.spool / RESERVOIR_FOLDER, Which(everything=True))
        return offer(reservoir, sample)

    monkeypatch.setattr(Reservoir, "offer", erase_first)
    assert fresh[1].read()
    assert not list((config.spool / RESERVOIR_FOLDER).iterdir())


def test_old_samples_expire_with_the_spools(config: TrainingConfig, monkeypatch) -> None:
    store(config, 3)
    material = Material(replace(config, retention_hours=1.0))
    fresh, old = material.training()
    assert len([ref.read() for ref in fresh]) == 3
    assert len(list((config.spool / "reservoir").iterdir())) == 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)
    _, old = material.training()
    assert old == []
    assert not list((config.spool / "reservoir").iterdir())
