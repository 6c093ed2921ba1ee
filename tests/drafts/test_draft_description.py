from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tide_cli.drafts.checks import read_json
from tide_cli.drafts.describe import VersionRows, compare, describe, lineage, read_config
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import relative_changes
from tide_cli.errors import TideError


@pytest.fixture
def store(tmp_path: Path, publish: Callable[..., int]) -> DraftStore:
    publish()
    publish(parent=0, gate={"gain": 0.25, "coverage": 0.93})
    publish(parent=1, gate={"gain": 0.5}, config={"rope_theta": 7.0})
    return DraftStore(tmp_path / "state" / "drafts")


def test_a_version_in_figures(store: DraftStore):
    store.pin(1)
    store.mark_bad(1, "fell short")
    found = json.loads(json.dumps(describe(store, 1)))
    assert found | {"created": 0} == {
        "version": "v0001",
        "pinned": True,
        "bad": "fell short",
        "target": "made-up",
        "target_revision": "r1",
        "created": 0,
        "lineage": ["v0000"],
        "gone": [],
        "samples": 1,
        "tokens": 100,
        "gate": {"gain": 0.25, "coverage": 0.93},
        "vocab_map": {
            "hash": store.manifest(1).vocab_map_hash,
            "draft_tokens": 12,
            "target_tokens": 32,
            "coverage": 0.93,
        },
        "folder": str(store.path(1)),
        "bytes": sum(path.stat().st_size for path in store.path(1).iterdir()),
        "files": store.manifest(1).files,
    }


def test_a_removed_ancestor_ends_the_lineage(store: DraftStore):
    assert lineage(store, 2) == [1, 0]
    store.remove(1)
    assert lineage(store, 2) == [1]
    assert describe(store, 2)["gone"] == ["v0001"]
    assert lineage(store, 1) == []


def test_two_versions_side_by_side(store: DraftStore):
    found = json.loads(json.dumps(compare(store, 1, 2)))
    assert found["config"] == {"rope_theta": {"a": None, "b": 7.0}}
    assert found["gate"]["gain"] == {"a": 0.25, "b": 0.5}
    assert found["same_vocab_map"] is True
    assert found["tensors"]["d2t"] == 0
    assert found["tensors"]["fc.weight"] > 1  # two random matrices
    assert all(change == 0 for change in compare(store, 2, 2)["tensors"].values())


def test_a_damaged_configuration_is_named(store: DraftStore):
    (store.path(2) / "config.json").write_text("[]")
    with pytest.raises(TideError, match=r"v0002/config\.json"):
        describe(store, 2)
    with pytest.raises(TideError, match="no draft v0009"):
        compare(store, 0, 9)


def test_relative_changes():
    before = {"a": torch.tensor([3.0, 4.0]), "b": torch.ones(2), "zero": torch.zeros(2), "still": torch.zeros(2)}
    after = {"a": torch.tensor([3.0, 4.5]), "b": torch.ones(3), "zero": torch.ones(2), "still": torch.zeros(2)}
    assert relative_changes(before, after | {"new": torch.ones(1)}) == {
        "a": pytest.approx(0.1),
        "b": None,
        "new": None,
        "still": 0.0,
        "zero": None,
    }


def test_the_newest_versions_in_rows(store: DraftStore, publish: Callable[..., int]):
    rows = VersionRows(store)
    unjudged = {"gain": None, "acceptance_length": None, "bad": None}
    assert rows.newest()[0] == {"version": 0, "tokens": 0} | unjudged
    assert [(row["version"], row["gain"]) for row in rows.newest(2)] == [(1, 0.25), (2, 0.5)]
    publish(parent=2, gate={"gain": 0.1, "candidate_al": 1.75})
    store.mark_bad(3, "fell short")
    assert rows.newest(1) == [
        {"version": 3, "tokens": 300, "gain": 0.1, "acceptance_length": 1.75, "bad": "fell short"}
    ]
    store.path(3).joinpath("manifest.json").chmod(0o600)
    store.path(3).joinpath("manifest.json").write_text("{")
    assert [row["version"] for row in VersionRows(store).newest()] == [0, 1, 2]
    assert VersionRows(DraftStore(store.root / "nowhere")).newest() == []


@pytest.mark.parametrize("content", ["", "[1]", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff"])
def test_a_damaged_configuration_is_an_error_of_its_version(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(TideError) as raised:
        read_config(tmp_path)
    assert str(tmp_path / "config.json") in raised.value.lines()[0]
    with pytest.raises(TideError) as raised:
        read_json(tmp_path / "config.json", "choose another")
    assert raised.value.lines()[1] == "choose another"
