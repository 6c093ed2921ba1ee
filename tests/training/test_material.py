"""What the trainer finds, counts and forgets."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from tiny_target import VOCABULARY

from tide_cli.adaptation.early_stop import FEWEST_SAMPLES
from tide_cli.adaptation.gate import RECENT_SAMPLES
from tide_cli.spool.erase import Which, erase_offline
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, Reservoir, erase_kept
from tide_cli.spool.writer import SpoolWriter
from tide_cli.training.config import TrainingConfig
from tide_cli.training.material import Material


def store(
    config: TrainingConfig, count: int, *, first: int = 0, value: float = 0.0, held_out: float = 0, prompt: int = 3
) -> None:
    """Samples of ten tokens that begin with first, first + 1, …; value: in one place of the states of the first."""
    layout = RowLayout(hidden_size=8, target="tiny")
    writer = SpoolWriter.open(config.spool, layout, 2**20, run="r", max_sample_tokens=64, held_out_share=held_out)
    for number in range(first, first + count):
        aux, final = torch.randn(9, 24), torch.randn(9, 8)
        if number == first:
            aux[3, 5] = value
        writer.put_rows("r", 0, aux, final)
        tokens = [number, *range(9)]
        writer.finish("r", tokens, prompt, draft_version=0, verify_steps=1, accepted_tokens=0)
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


def test_drafts_are_compared_on_what_none_was_trained_on(config: TrainingConfig) -> None:
    store(config, 4)
    store(config, 2, held_out=1.0)
    material = Material(config)
    fresh, _ = material.training()
    material.trained(ref.read().info for ref in fresh[:3])  # not yet counted on the disk
    assert [ref.read().info.id for ref in material.newest(9)] == [6, 5, 1]
    assert [ref.read().info.id for ref in Material(config).newest(2)] == [6, 5]


def test_what_holds_nothing_to_predict_is_not_looked_at(config: TrainingConfig) -> None:
    store(config, 40, prompt=8)  # answers of two tokens, of which the prefill gives one and the other has no row
    material = Material(config)
    assert material.hold_back(1e9) == []
    store(config, 32, prompt=7)
    store(config, 5, prompt=8)
    held_back = [ref.read() for ref in material.hold_back(1e9)]
    assert [sample.info.prompt_tokens for sample in held_back if sample] == [7] * FEWEST_SAMPLES
    assert len(material.training()[0]) == 40 + 32 + 5 - FEWEST_SAMPLES  # the others are trained on


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


def test_a_start_erases_what_has_expired_meanwhile(config: TrainingConfig, monkeypatch) -> None:
    store(config, 3)
    assert all(ref.read() for ref in Material(config).training()[0])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)
    Material(replace(config, retention_hours=1.0))
    assert not list((config.spool / "reservoir").iterdir())


def test_the_gate_looks_at_what_came_after_the_served_draft(config: TrainingConfig) -> None:
    config = replace(config, gate_samples=48)
    store(config, 20, held_out=1.0)
    before = time.time()
    store(config, 5, held_out=1.0)
    newest, old = Material(config).held_out(0.0)
    assert (len(newest), len(old)) == (25, 0)
    assert all(ref.read() for ref in newest)  # the reservoir has them now
    newest, old = Material(config).held_out(before)
    assert len(newest) == RECENT_SAMPLES
    assert [ref.read().info.created >= before for ref in newest] == [True] * 5 + [False] * (RECENT_SAMPLES - 5)
    assert 0 < len(old) <= 25 - RECENT_SAMPLES
    store(config, 15, held_out=1.0)
    newest, _ = Material(config).held_out(before)
    assert len(newest) == 20


def test_old_samples_stay_when_ids_begin_anew(config: TrainingConfig) -> None:
    for held_out in (0.0, 1.0):
        store(config, 2, held_out=held_out)
    material = Material(config)
    assert all(ref.read() for refs in (material.training()[0], material.held_out(0.0)[0]) for ref in refs)
    for path in config.spool.iterdir():  # for a ring of another size
        if path.is_file():
            path.unlink()
    for held_out in (0.0, 1.0):
        store(config, 3, held_out=held_out)
    material = Material(config)
    for fresh, old in (material.training(), material.held_out(0.0)):
        assert (len(fresh), len(old)) == (3, 2)
        assert all(ref.read() for ref in fresh)
    assert [len(old) for _, old in (material.training(), material.held_out(0.0))] == [2, 2]


@pytest.mark.parametrize(("first", "value"), [(0, float("nan")), (0, float("-inf")), (VOCABULARY, 0.0), (-1, 0.0)])
def test_a_sample_that_would_spoil_the_draft_is_left_out(config: TrainingConfig, first: int, value: float) -> None:
    for held_out in (0.0, 1.0):
        store(config, 1, first=first, value=value, held_out=held_out)
        store(config, 2, held_out=held_out)
    material = Material(config)
    for refs in (material.training()[0], material.held_out(0.0)[0]):
        read = [ref.read() for ref in refs]
        assert sorted(sample.tokens[0].item() for sample in read if sample is not None) == [0, 1]
        assert [ref.read() is None for ref in refs] == [sample is None for sample in read]
    assert len([ref for ref in material.newest(6) if ref.read() is None]) == 2
    assert material.left_out().startswith("2 samples left out: ")
    assert material.left_out() == ""
    kept = Reservoir(config.spool / RESERVOIR_FOLDER, config.reservoir_size, config.seed)
    assert sorted(one.read().tokens[0].item() for one in kept.samples()) == [0, 0, 1, 1]


@pytest.mark.parametrize("held_out", [0.0, 1.0])
def test_an_old_sample_that_would_spoil_the_draft_is_left_out(config: TrainingConfig, held_out: float) -> None:
    """Kept before it was looked at."""
    store(config, 2, value=float("nan"), held_out=held_out)
    reader = SpoolReader.open(config.spool)
    kept = Reservoir(config.spool / RESERVOIR_FOLDER, config.reservoir_size, config.seed)
    assert all(kept.offer(reader.read(info)) for info in reader.samples())
    erase_offline(config.spool, Which(everything=True))
    material = Material(config)
    _, old = material.held_out(0.0) if held_out else material.training()
    assert sorted(ref.read() is None for ref in old) == [False, True]
    assert material.left_out().startswith("1 sample left out: ")
