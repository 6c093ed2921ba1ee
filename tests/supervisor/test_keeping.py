"""What stays of the versions of an appliance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tide_cli.drafts.store import DraftStore
from tide_cli.paths import Paths
from tide_cli.supervisor.journal import Journal
from tide_cli.supervisor.keeping import mark_bad, retention, tidy, with_figures
from tide_cli.training.record import STATE_FILE, CycleRecord, state_file


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """v0000 to v0011, each made from the one before and served after it, but the last, which is published alone."""
    paths = Paths.under(tmp_path / "state", tmp_path / "cache")
    paths.state.mkdir()
    draft = tmp_path / "draft"
    draft.mkdir()
    for name in ("model.safetensors", "config.json"):
        (draft / name).write_text("{}")
    store, journal = DraftStore(paths.drafts), Journal(paths.database)
    for version in range(12):
        parent = version - 1 if version else None
        store.publish(
            draft, parent=parent, target="t", target_revision="r", vocab_map_hash="", samples=1, tokens=1, gate=None
        )
        if version < 11:
            journal.serve(version)
            swapped(journal, version, parent)
    journal.close()
    return paths


def swapped(journal: Journal, version: int, before: int | None, **lengths: float) -> None:
    domains = {name: {"acceptance_length": al, "requests": 20} for name, al in lengths.items()}
    journal.note("swap", "", {"version": version, "before": before, "domains": domains})


def test_the_bound_holds_and_what_is_in_use_stays(paths: Paths) -> None:
    DraftStore(paths.drafts).pin(2)
    told = tidy(paths, 7, lambda: [4])
    assert told is not None
    assert told.data["kept"] == {
        "v0000": "the first",
        "v0002": "pinned",
        "v0004": "in use",
        "v0008": "recent",
        "v0009": "served before",
        "v0010": "served",
        "v0011": "newest",
    }
    assert DraftStore(paths.drafts).versions() == [0, 2, 4, 8, 9, 10, 11]
    assert told.text.startswith("v0001, v0003, v0005, v0006, v0007 removed (")
    assert told.text.endswith("): 7 versions stay, keep_drafts is 7")
    assert tidy(paths, 7, lambda: [4]) is None


def test_what_is_put_into_service_or_pinned_meanwhile_stays(paths: Paths) -> None:
    store, asked = DraftStore(paths.drafts), list[int]()

    def in_use() -> list[int] | None:
        asked.append(len(store.versions()))
        if len(asked) == 3:  # v0001 is gone
            store.pin(2)
        return None if len(store.versions()) == 9 else [5] if len(asked) > 3 else []

    told = tidy(paths, 1, in_use)
    assert told is not None
    assert told.data["removed"] == [1, 3, 4]  # then kept versions are tried: none goes
    assert tidy(paths, 1, lambda: None) is None
    assert store.versions() == [0, 2, 5, 6, 7, 8, 9, 10, 11]


def test_what_training_goes_on_from_and_what_can_be_run_again_stays(paths: Paths) -> None:
    paths.training.mkdir()
    progress = '{"parent": 3, "cycle": 9}'
    save_file({"master": np.zeros(2)}, paths.training / STATE_FILE, metadata={"progress": progress})
    for cycle, served, start in ((1, 1, "version"), (2, 5, "state"), (3, 6, "state"), (4, 7, "lost")):
        record = CycleRecord(cycle, 0.0, served, start, {"processes": 1}, begun=2 if cycle == 1 else None)
        record.write(paths.training)
    state_file(paths.training, 3).touch()
    kept = retention(paths, 1).keep
    assert kept == {
        10: "served",
        9: "served before",
        11: "newest",
        0: "the first",
        1: "needed by `tide train replay`",
        2: "needed by `tide train replay`",
        3: "in training",
        6: "needed by `tide train replay`",
    }


def test_the_best_on_recent_traffic_stays_before_recent_ones(paths: Paths) -> None:
    journal = Journal(paths.database)
    swapped(journal, 10, 5, code=1.9, sql=1.2)
    swapped(journal, 10, 6, code=1.5, sql=1.3)
    swapped(journal, 10, 9)
    journal.close()
    choose = {"cmd": "choose", "served": 10}
    assert with_figures(choose, paths) == choose | {
        "figures": {
            "5": {"requests of code": 1.9, "requests of sql": 1.2},
            "6": {"requests of code": 1.5, "requests of sql": 1.3},
        }
    }
    for other in ({"cmd": "train", "served": 10}, choose | {"among": [9]}):
        assert with_figures(other, paths) == other
    keep = retention(paths, 6).keep
    assert {version: why for version, why in keep.items() if version in (5, 6)} == {
        5: "best on recent traffic",
        6: "best on recent traffic",
    }
    assert 8 not in keep


def test_what_can_be_run_again_does_not_crowd_out_the_best_on_recent_traffic(paths: Paths) -> None:
    paths.training.mkdir()
    for cycle in range(1, 8):
        CycleRecord(cycle, 0.0, cycle, "version", {"processes": 1}, begun=cycle - 1).write(paths.training)
    journal = Journal(paths.database)
    swapped(journal, 10, 8, code=1.9)
    swapped(journal, 10, 9, code=1.5)
    journal.close()
    keep = retention(paths, 5).keep
    assert keep[8] == "best on recent traffic"
    assert {version for version, why in keep.items() if why == "needed by `tide train replay`"} == set(range(1, 8))


def test_a_mark_that_fails_is_told(paths: Paths) -> None:
    assert mark_bad(paths, 3, "it fell short") is None
    assert DraftStore(paths.drafts).marks().bad == {3: "it fell short"}
    told = mark_bad(paths, 99, "it fell short")
    assert told is not None
    assert told.kind == "mark_failed"
    assert told.text.startswith("v0099 is not marked bad: there is no draft v0099")


def test_a_damaged_served_version_is_told_and_nothing_goes(paths: Paths) -> None:
    manifest = paths.drafts / "v0010" / "manifest.json"
    manifest.chmod(0o600)
    manifest.write_text("{")
    told = tidy(paths, 1, set)
    assert told is not None
    assert told.kind == "tidy_failed"
    assert "nothing was removed" in told.text
    assert len(DraftStore(paths.drafts).versions()) == 12
