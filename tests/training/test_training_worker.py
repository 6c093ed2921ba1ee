"""The real process: commands in, events out, drafts in the store."""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_target import HIDDEN, VOCABULARY, Target, fill_spool
from worker_process import Event, Worker

from tide_cli.adaptation.gate import Walk, decide
from tide_cli.drafts.checks import publish_foreign
from tide_cli.drafts.make import why_not_in_place
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import check_vocabulary_map, read_draft, vocab_map_hash
from tide_cli.errors import TideError
from tide_cli.training import judge, kept, resident
from tide_cli.training.config import TrainingConfig
from tide_cli.training.cycle import Cycles
from tide_cli.training.day_zero import publish_day_zero
from tide_cli.training.record import CycleRecord, recorded, state_file
from tide_cli.training.state import STATE_FILE, read_progress
from tide_cli.training.trainer import DraftTrainer


def publish_spoilt(store: DraftStore, folder: Path) -> int:
    """Version 1 once more, with values that no engine would take."""
    folder.mkdir()
    tensors = read_draft(store.path(1))
    tensors["fc.weight"] = tensors["fc.weight"] * float("nan")
    save_file(tensors, folder / "model.safetensors")
    shutil.copy(store.path(1) / "config.json", folder)
    manifest = store.manifest(1)
    fields = {name: getattr(manifest, name) for name in ("target", "target_revision", "vocab_map_hash")}
    return store.publish(folder, parent=1, samples=0, tokens=0, gate=None, **fields)


def test_a_life_of_cycles(
    target: Target, config: TrainingConfig, day_zero: Path, start: Callable[[TrainingConfig], Worker]
) -> None:
    """One test, since a start of the process takes seconds: what it says, publishes, keeps and survives."""
    store = DraftStore(config.drafts)
    worker = start(config)
    assert worker.until("ready")[0]["seconds"] > 0

    worker.send(cmd="train", served=0)
    assert worker.until("cycle_end")[-1]["reason"] == "there is no sample to train on"
    for nonsense in ({"cmd": "train"}, {"cmd": "dance"}, {"cmd": "train", "served": True}):
        worker.send(**nonsense)
        assert "not a command" in worker.until("error")[-1]["message"]
    worker.send(cmd="train", served=7)
    assert "v0007" in worker.until("error")[-1]["message"]  # that cycle has ended, the worker goes on

    made = target.samples(40)
    fill_spool(config, [replace(s, info=replace(s.info, domain=("even", "odd")[s.info.id % 2])) for s in made])
    trained, seen = 0, set[str]()
    for _ in range(10):  # cycles go on from each other's weights until one passes
        worker.send(cmd="train", served=0)
        events = {event["event"]: event for event in worker.until("cycle_end")}
        trained += events["progress"]["tokens"]
        seen |= set(events)
        if events["gate"]["passed"]:
            break
    assert "alive" in seen
    assert events["progress"]["step"] > 0
    assert events["progress"]["tokens_s"] > 0
    gate = events["gate"]
    assert gate["passed"], gate
    assert gate["candidate_al"] > gate["served_al"] + config.gate_margin
    assert set(gate["domains"]) == {"even"}  # of the odd ones only three are held out
    given = gate["decided_from"]["input"]
    domains = given.pop("domains")
    walks = {name: [Walk(*one) for one in walked] for name, walked in given.items()}
    again = decide(**walks, domains=domains, **gate["decided_from"]["rules"])
    assert (again.passed, again.reason) == (gate["passed"], gate["reason"])  # the event holds all that was looked at
    assert events["published"]["parent"] == 0
    assert events["cycle_end"]["published"] == events["published"]["version"] == 1
    store.verify(1)
    manifest = store.manifest(1)
    assert (manifest.parent, manifest.tokens) == (0, trained)
    assert manifest.vocab_map_hash == store.manifest(0).vocab_map_hash
    assert torch.equal(read_draft(store.path(1))["t2d"], read_draft(store.path(0))["t2d"])
    assert not list(config.state.glob("candidate-*"))

    # the traffic has changed back: the version that was published suits it better than the one before
    spoilt = publish_spoilt(store, config.state / "spoilt")
    worker.send(cmd="choose", served=0)
    pool = worker.until("pool")[-1]
    assert (pool["version"], pool["served"]) == (1, 0), pool
    assert spoilt not in [walked["version"] for walked in pool["walked"]]
    worker.send(cmd="choose", served=1)
    assert worker.until("pool")[-1]["version"] is None
    store.mark_bad(1, "it was taken back")
    worker.send(cmd="choose", served=0)
    assert worker.until("pool")[-1]["walked"] == []
    worker.send(cmd="choose", served=0, among=[1])  # asked for by name
    assert [walked["version"] for walked in worker.until("pool")[-1]["walked"]] == [1]
    assert worker.end() == 0

    saved = read_progress(config.state)
    assert saved is not None
    assert (saved.parent, saved.tokens) == (1, 0)
    again = start(replace(config, cycle_seconds=3600.0))
    again.until("ready")
    again.send(cmd="train", served=1)
    again.until("progress")
    again.send(cmd="cancel")
    end = again.until("cycle_end")[-1]
    assert (end["cycle"], end["published"], end["reason"]) == (saved.cycle + 1, None, "cancelled")
    continued = read_progress(config.state)
    assert continued is not None
    assert continued.parent == 1
    assert continued.steps > saved.steps
    again.send(cmd="train", served=1)
    again.until("progress")
    again.send(cmd="cancel")
    again.until("cycle_end")
    resumed = read_progress(config.state)
    assert resumed is not None
    assert resumed.steps > continued.steps  # it has gone on from there

    again.send(cmd="train", served=0)  # rolled back: the weights in training are given up
    again.until("progress")
    assert again.end() == 0  # in the middle of a cycle
    restarted = read_progress(config.state)
    assert restarted is not None
    assert restarted.parent == 0
    assert restarted.cycle == resumed.cycle + 1


def test_a_vocabulary_that_does_not_fit_the_traffic_is_changed_and_published(
    target: Target, config: TrainingConfig, start: Callable[[TrainingConfig], Worker]
) -> None:
    config = replace(config, draft_vocab_size=150, vocab_coverage=0.97)
    publish_day_zero(config)  # the lower half of the tokens, the other half of the text
    store = DraftStore(config.drafts)
    fill_spool(config, target.samples(40))
    worker = start(config)
    worker.until("ready")
    changed = []
    for _ in range(10):
        worker.send(cmd="train", served=0)
        events = {event["event"]: event for event in worker.until("cycle_end")}
        changed.append(events["coverage"]["changed"])
        if events["gate"]["passed"]:
            break
    said = events["coverage"]
    assert said["served"] < 0.7 < said["candidate"] <= 1
    assert changed[0] > 10
    assert changed[1:] == [0] * (len(changed) - 1)  # the same traffic, the same vocabulary
    assert events["cycle_end"]["published"] == 1, events["gate"]
    old, new = (read_draft(store.path(version)) for version in (0, 1))
    check_vocabulary_map(new["d2t"], new["t2d"])
    assert old["lm_head.weight"].shape == new["lm_head.weight"].shape
    manifest = store.manifest(1)
    assert manifest.vocab_map_hash == vocab_map_hash(new["d2t"]) != store.manifest(0).vocab_map_hash
    assert manifest.gate["coverage"] == said["candidate"]

    # the version before has another vocabulary, and is walked all the same
    worker.send(cmd="choose", served=0)
    assert worker.until("pool")[-1]["version"] == 1
    worker.send(cmd="train", served=1)
    events = {event["event"]: event for event in worker.until("cycle_end")}
    assert events["coverage"]["served"] == said["candidate"]
    assert worker.end() == 0


def test_an_empty_store_is_an_error_with_a_remedy(config: TrainingConfig) -> None:
    with pytest.raises(TideError, match="no draft"):
        Cycles(config, lambda event: None, lambda: None)


def test_a_cycle_leaves_out_what_would_spoil_it_and_says_so_once(target: Target, config: TrainingConfig) -> None:
    config = replace(config, cycle_seconds=0.3)
    publish_day_zero(config)
    made = target.samples(8)
    made[3].aux[2] = float("nan")
    made[5].tokens[1] = VOCABULARY
    fill_spool(config, made)
    events: list[Event] = []
    cycles = Cycles(config, events.append, lambda: None)
    ends = []
    for _ in range(2):
        cycles.run(served=0)
        ends.append(events[-1]["reason"])
    assert ["2 samples left out: " in reason for reason in ends] == [True, False]


def test_a_damaged_version_is_left_out_of_a_comparison(target: Target, config: TrainingConfig, day_zero: Path) -> None:
    store, events = DraftStore(config.drafts), list[Event]()
    manifest = store.manifest(0)
    fields = {name: getattr(manifest, name) for name in ("target", "target_revision", "vocab_map_hash")}
    for _ in range(3):
        store.publish(day_zero, parent=0, samples=0, tokens=0, gate=None, **fields)
    (store.path(2) / "manifest.json").write_text("{")
    fill_spool(config, target.samples(4))
    cycles = Cycles(config, events.append, lambda: None)
    assert cycles.choose(1, [0]) is None
    assert [walked["version"] for walked in events[-1]["walked"]] == [0]
    assert cycles.choose(1) is None
    assert sorted(walked["version"] for walked in events[-1]["walked"]) == [0, 3]
    with pytest.raises(TideError, match="damaged"):
        cycles.choose(2)


def test_what_is_known_of_kept_versions_decides_which_comes_first(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    store, events = DraftStore(config.drafts), list[Event]()
    manifest = store.manifest(0)
    fields = {name: getattr(manifest, name) for name in ("target", "target_revision", "vocab_map_hash")}
    for _ in range(5):
        store.publish(day_zero, parent=0, samples=0, tokens=0, gate=None, **fields)
    fill_spool(config, target.samples(4))
    cycles = Cycles(config, events.append, lambda: None)
    cycles.choose(0)
    assert [walked["version"] for walked in events[-1]["walked"]] == [5, 4, 3, 2, 1]
    cycles.choose(0, figures={"0": {"requests of code": 1.8}, "2": {"requests of code": 1.3}})
    assert [walked["version"] for walked in events[-1]["walked"]] == [2, 5, 4, 3, 1]


def test_kept_versions_are_read_in_turn_and_in_the_time_for_walks(
    target: Target, config: TrainingConfig, day_zero: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, events = DraftStore(config.drafts), list[Event]()
    manifest = store.manifest(0)
    fields = {name: getattr(manifest, name) for name in ("target", "target_revision", "vocab_map_hash")}
    for _ in range(6):
        store.publish(day_zero, parent=0, samples=0, tokens=0, gate=None, **fields)
    fill_spool(config, target.samples(4))
    seconds, read, asked = 0.0, list[weakref.ref[Any]](), list[int]()

    def takes_a_minute(folder: Path) -> dict[str, Any]:
        nonlocal seconds
        seconds += 60.0
        alive.append(sum(part() is not None for part in read))
        tensors = read_draft(folder)
        read.append(weakref.ref(tensors["fc.weight"]))
        return tensors

    def check() -> None:
        asked.append(len(read))

    cycles, alive = Cycles(config, events.append, check), list[int]()
    monkeypatch.setattr(judge, "time", SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(kept, "read_draft", takes_a_minute)
    cycles.choose(0)
    assert [walked["version"] for walked in events[-1]["walked"]] == [6, 5, 4, 3]
    assert alive == [0, 1, 1, 1, 1]  # the served one alone
    assert set(asked) == {1, 2, 3, 4, 5}  # a command is heard between two reads


def test_cycles_are_numbered_on_after_the_state_was_lost(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    config = replace(config, cycle_seconds=0.1)
    fill_spool(config, target.samples(4))
    Cycles(config, lambda event: None, lambda: None).run(served=0)
    record = CycleRecord.read(config.state, 1)
    for number in range(11, 31):
        replace(record, cycle=number).write(config.state)
    (config.state / STATE_FILE).unlink()
    cycles = Cycles(config, lambda event: None, lambda: None)
    for _ in range(2):
        cycles.run(served=0)
    assert recorded(config.state) == list(range(13, 33))
    assert CycleRecord.read(config.state, 32).start == "state"
    assert state_file(config.state, 32).exists()


def with_an_imported_one(config: TrainingConfig, elsewhere: Path, theta: float | None = None) -> None:
    """v0000 of the usual make, and v0001, the newest, with half as many tokens, or theta as its rope_theta."""
    publish_day_zero(config)
    tokens = config.draft_vocab_size // (2 if theta is None else 1)
    other = replace(config, drafts=elsewhere / "drafts", draft_vocab_size=tokens)
    publish_day_zero(other)
    folder, store = elsewhere / "made", DraftStore(config.drafts)
    folder.mkdir()
    shutil.copy(other.drafts / "v0000" / "model.safetensors", folder)
    said = json.loads((other.drafts / "v0000" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said if theta is None else said | {"rope_theta": theta}))
    sizes = {"hidden_size": HIDDEN, "vocab_size": VOCABULARY}
    publish_foreign(folder, store, target=config.target_name, target_revision="r", target_config=sizes, remedy="none")


@pytest.mark.parametrize("theta", [None, 123.0])
def test_the_newest_version_may_be_an_imported_one_of_another_make(
    config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theta: float | None
) -> None:
    """A trainer that starts from it must still be able to train the served one. There may not be room for both."""
    with_an_imported_one(config, tmp_path / "elsewhere", theta)
    events: list[Event] = []
    cycles = Cycles(config, events.append, lambda: None)
    before = [weakref.ref(part) for part in (cycles.trainer.draft, *cycles.trainer.masters().values())]
    alive = []

    class Second(DraftTrainer):
        def __init__(self, *arguments: Any) -> None:
            alive.append(sum(part() is not None for part in before))
            super().__init__(*arguments)

    monkeypatch.setattr(resident, "DraftTrainer", Second)
    assert cycles.run(served=0) is None
    assert alive == [0]
    assert events[-1]["reason"] == "there is no sample to train on"
    assert cycles.trainer.tensors()["d2t"].shape == (config.draft_vocab_size,)
    cycles.trainer.export(tmp_path)  # as it would be published
    assert why_not_in_place(config.drafts / "v0000", tmp_path) is None


@pytest.mark.parametrize("theta", [None, 123.0])
def test_kept_versions_are_walked_where_the_served_one_is_of_another_make(
    target: Target, config: TrainingConfig, tmp_path: Path, theta: float | None
) -> None:
    with_an_imported_one(config, tmp_path / "elsewhere", theta)
    fill_spool(config, target.samples(4))
    events: list[Event] = []
    cycles = Cycles(config, events.append, lambda: None)
    for served in (0, 1, 0):
        assert cycles.choose(served) is None
        assert (events[-1]["served"], events[-1]["walked"]) == (served, [])  # the other one does not fit the engine


def test_a_trainer_of_another_make_that_cannot_be_made_is_an_error_each_time(
    config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_an_imported_one(config, tmp_path / "elsewhere")
    events: list[Event] = []
    cycles = Cycles(config, events.append, lambda: None)
    cycles.save()

    def fails(*arguments: Any) -> DraftTrainer:
        raise TideError("there is no room for the draft")

    monkeypatch.setattr(resident, "DraftTrainer", fails)
    for _ in range(2):
        with pytest.raises(TideError, match="no room"):
            cycles.run(served=0)
    with pytest.raises(TideError, match="no room"):
        cycles.choose(served=0)
    cycles.save()  # as at a stop: what was saved before stays
    saved = read_progress(config.state)
    assert saved is not None
    assert saved.parent == 1

    monkeypatch.setattr(resident, "DraftTrainer", DraftTrainer)
    for served, tokens in ((0, config.draft_vocab_size), (1, config.draft_vocab_size // 2)):
        assert cycles.run(served) is None
        assert events[-1]["reason"] == "there is no sample to train on"
        assert len(cycles.trainer.vocabulary) == tokens
    cycles.save()
    saved = read_progress(config.state)
    assert saved is not None
    assert saved.parent == 1
