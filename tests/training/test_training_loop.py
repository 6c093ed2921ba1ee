"""Where a cycle begins, when it ends, and with which weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_target import Target, fill_spool
from worker_process import Event

from tide_cli.adaptation import early_stop
from tide_cli.spool.reader import SpoolReader
from tide_cli.training import training_loop
from tide_cli.training.config import TrainingConfig
from tide_cli.training.cycle import Cycles
from tide_cli.training.day_zero import publish_day_zero
from tide_cli.training.looks import Looks
from tide_cli.training.record import CycleRecord
from tide_cli.training.replay import replay
from tide_cli.training.state import read_progress


class Trained:
    """Cycles that end by tokens, or for want of progress, and pass no gate."""

    def __init__(self, config: TrainingConfig, target: Target, **changes: Any) -> None:
        self.config = replace(config, cycle_seconds=3600.0, gate_margin=10.0, **changes)
        publish_day_zero(self.config)
        fill_spool(self.config, target.samples(60))
        self.events: list[Event] = []
        self.cycles = Cycles(self.config, self.events.append, lambda: None)

    def run(self, *, rate: float | None = 1e6) -> CycleRecord:
        """rate: tokens/s that the cycle is expected to come to."""
        self.cycles._loop._rate = rate
        self.cycles.run(served=0)
        return CycleRecord.read(self.config.state, self.cycles._resident.progress.cycle)

    def replayed(self, record: CycleRecord) -> dict[str, Any]:
        return replay(self.config, record, None, lambda done, total: None)


def script(monkeypatch: pytest.MonkeyPatch, lengths: Sequence[float]) -> None:
    """What the looks find, instead of a walk."""
    left = iter(lengths)
    monkeypatch.setattr(Looks, "_length", lambda self, masters: next(left))


def test_a_cycle_ends_when_its_tokens_are_used_up(
    target: Target, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_loop, "_REPORT_SECONDS", 0.0)
    trained = Trained(config, target, train_tokens=700, early_stop=True)
    record = trained.run()
    reports = [event for event in trained.events if event["event"] == "progress"]
    assert 700 <= reports[-1]["tokens"] < 700 + config.batch_tokens
    assert len(reports) == len(record.steps)
    for report in reports:
        assert report["budget_s"] == pytest.approx(report["elapsed_s"] * 700 / report["tokens"], abs=0.02)
        assert (report["budget_s"] <= report["elapsed_s"]) is (report is reports[-1])
    assert (record.looked_at, record.looks, record.kept) == ([], [], len(record.steps))  # too few tokens for looks
    assert trained.run(rate=None).looked_at == []


def test_too_few_samples_that_can_still_be_read_are_not_looked_at(config: TrainingConfig) -> None:
    readable = [SimpleNamespace(info=SimpleNamespace(id=n, checksum=0)) for n in range(early_stop.FEWEST_SAMPLES - 1)]
    refs = [SimpleNamespace(read=lambda one=one: one) for one in [*readable, None]]
    material: Any = SimpleNamespace(hold_back=lambda expected: refs)
    resident: Any = SimpleNamespace(trainer=None, progress=None)
    loop = training_loop.TrainingLoop(config, resident, material, lambda event: None, lambda: None)
    record = CycleRecord(1, 0.0, 0, "state", {})
    assert not loop._begin_looks(record).stepped(10**9)
    assert record.looked_at == []


def test_a_cycle_without_progress_ends_with_its_best_weights(
    target: Target, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_stop, "LOOK_SHARE", 1.0)
    trained = Trained(config, target, early_stop=True)
    lengths = [1.0, 1.5, 1.2, 1.5]
    script(monkeypatch, lengths)
    record = trained.run()
    assert [length for _, length in record.looks] == lengths
    assert record.kept == record.looks[1][0] < len(record.steps) == record.looks[3][0]
    end, last = trained.events[-1], next(e for e in reversed(trained.events) if e["event"] == "progress")
    assert "no progress in 2 looks, training ended early; kept the weights of step" in end["reason"]
    assert [look["al"] for look in end["looks"]] == lengths
    assert last["budget_s"] <= last["elapsed_s"]  # no time remains
    saved = read_progress(trained.config.state)
    assert saved is not None
    assert saved.samples == sum(map(len, record.steps[: record.kept]))
    assert 0 < saved.tokens < last["tokens"]

    # the same weights come out again, and those of a cycle that ended at that step
    script(monkeypatch, lengths)
    found = trained.replayed(record)
    assert (found["identical"], found["replayed"]["kept"]) == (True, record.kept)
    cut = replace(record, steps=record.steps[: record.kept], losses=record.losses[: record.kept], looked_at=[])
    assert trained.replayed(cut)["replayed"]["weights"] == record.weights


def test_looks_that_get_better_end_nothing(
    target: Target, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one is at the weights of the last step."""
    monkeypatch.setattr(early_stop, "LOOK_SHARE", 1.0)
    trained = Trained(config, target, early_stop=True, train_tokens=5000)
    script(monkeypatch, [float(number) for number in range(1000)])
    record = trained.run()
    assert record.kept == record.looks[-1][0] == len(record.steps)
    assert len(record.looks) > 3
    assert "look" not in trained.events[-1]["reason"]


def test_what_is_looked_at_is_neither_trained_on_nor_judged_by_but_the_next_cycle_learns_from_it(
    target: Target, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_stop, "LOOK_SHARE", 1.0)
    trained = Trained(config, target, early_stop=True, train_tokens=6000)
    first = trained.run()
    looked_at = set(first.looked_at)
    assert len(looked_at) >= early_stop.FEWEST_SAMPLES
    judged_by = {*first.newest, *first.old}
    steps = {key for batch in first.steps for key in batch}
    assert not looked_at & (steps | judged_by)
    assert looked_at | steps | judged_by <= first.samples()
    compared_on = [ref.read().info for ref in trained.cycles._material.newest(99)]
    assert compared_on
    assert not looked_at & {(info.id, info.checksum) for info in compared_on}
    found = trained.replayed(first)
    assert (found["identical"], found["same"]) == (True, True)
    reader = SpoolReader.open(trained.config.spool)
    samples = [reader.read(info) for info in reader.samples() if (info.id, info.checksum) in looked_at]
    looks = Looks(trained.config, trained.cycles.trainer, samples, lambda: None)
    assert looks._length(trained.cycles.trainer.masters()) == max(length for _, length in first.looks)

    second = trained.run()
    assert second.looked_at == []  # hardly anything is new
    assert looked_at <= {key for batch in second.steps for key in batch}


def test_after_a_shift_training_begins_from_the_best_version_even_where_none_is_good_enough_to_be_served(
    target: Target, config: TrainingConfig
) -> None:
    teacher = replace(config, state=config.state / "other", gate_margin=-10.0, gate_floor=10.0)
    trained = Trained(config, target, train_tokens=2000)
    Cycles(replace(teacher, train_tokens=20_000, cycle_seconds=3600.0), lambda event: None, lambda: None).run(served=0)
    assert trained.cycles.choose(served=0) is None
    assert trained.events[-1]["reason"].endswith("; training begins from v0001")
    record = trained.run()
    assert (record.served, record.start, record.begun) == (0, "version", 1)
    found = trained.replayed(record)
    assert (found["identical"], found["same"]) == (True, True)
    saved = read_progress(trained.config.state)
    assert saved is not None
    assert (saved.parent, saved.begun) == (0, 1)  # it is judged against the served one, and goes on from here

    # it does better still, and is not given up for the version that it began from
    assert trained.cycles.choose(served=0) is None
    assert "training begins" not in trained.events[-1]["reason"]
    again = trained.run()
    assert (again.start, again.begun) == ("state", None)
    assert trained.replayed(again)["identical"]

    trained.cycles.choose(served=0)
    trained.cycles._resident.start_next_from(1, served=7)  # another one is served by now
    assert trained.run().start == "state"
