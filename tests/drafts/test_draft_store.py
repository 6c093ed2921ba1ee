from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tide_cli
from tide_cli.drafts.manifest import version_of_folder
from tide_cli.drafts.store import DraftStore, Manifest, parse_version, version_name
from tide_cli.errors import TideError, UsageError

FIELDS = {
    "parent": None,
    "target": "made-up",
    "target_revision": "r1",
    "vocab_map_hash": "ab" * 32,
    "samples": 12,
    "tokens": 3456,
    "gate": {"gain": 0.25, "passed": True},
}


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = tmp_path / "candidate"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(os.urandom(5000))
    (folder / "config.json").write_text('{"hidden_size": 64}')
    (folder / "optimizer.bin").write_bytes(b"not part of a draft")
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_versions_count_up_and_tell_where_they_come_from(tmp_path: Path, draft: Path):
    store = DraftStore(tmp_path / "state" / "drafts")
    assert (store.versions(), store.latest()) == ([], None)
    assert store.publish(draft, **FIELDS) == 0
    assert store.publish(draft, **FIELDS | {"parent": 0, "samples": 7}) == 1
    assert (store.versions(), store.latest()) == ([0, 1], 1)
    manifest = store.manifest(1)
    assert {name: getattr(manifest, name) for name in FIELDS} == FIELDS | {"parent": 0, "samples": 7}
    assert manifest.created > 1.6e9
    assert files_of(store.path(1)).keys() == {"model.safetensors", "config.json", "manifest.json"}
    for name in ("model.safetensors", "config.json"):
        assert (store.path(1) / name).read_bytes() == (draft / name).read_bytes()
        assert stat.S_IMODE((store.path(1) / name).stat().st_mode) == 0o600
    store.verify(0)
    store.verify(1)


def test_a_gap_in_the_versions_is_not_filled(tmp_path: Path, draft: Path):
    store = DraftStore(tmp_path)
    (tmp_path / "v0041").mkdir()
    (tmp_path / "v7").mkdir()
    (tmp_path / "v0050").write_text("a file")
    assert store.publish(draft, **FIELDS) == 42
    assert store.versions() == [41, 42]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_changed_or_lost_files_are_named(tmp_path: Path, draft: Path, name: str):
    store = DraftStore(tmp_path / "drafts")
    store.publish(draft, **FIELDS)
    path = store.path(0) / name
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with pytest.raises(TideError, match=f"v0000/{name}") as changed:
        store.verify(0)
    assert "sha256" in changed.value.why
    path.unlink()
    with pytest.raises(TideError, match=f"v0000/{name}"):
        store.verify(0)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"files": {}}', b"\xff\xfe"])
def test_an_unreadable_manifest_is_named(tmp_path: Path, draft: Path, content: bytes):
    store = DraftStore(tmp_path / "drafts")
    store.publish(draft, **FIELDS)
    (store.path(0) / "manifest.json").write_bytes(content)
    for look in (store.verify, store.manifest):
        with pytest.raises(TideError, match=r"v0000/manifest\.json"):
            look(0)


def test_a_manifest_without_a_files_hash_verifies_nothing(tmp_path: Path, draft: Path):
    store = DraftStore(tmp_path / "drafts")
    store.publish(draft, **FIELDS)
    path = store.path(0) / "manifest.json"
    content = json.loads(path.read_text())
    del content["files"]["config.json"]
    path.write_text(json.dumps(content))
    with pytest.raises(TideError, match=r"config\.json"):
        store.verify(0)


def test_an_unknown_version_names_those_there_are(tmp_path: Path, draft: Path):
    store = DraftStore(tmp_path / "drafts")
    with pytest.raises(TideError, match="no draft v0003") as nothing:
        store.verify(3)
    assert "none" in nothing.value.why
    store.publish(draft, **FIELDS)
    with pytest.raises(TideError, match="no draft v0003") as other:
        store.manifest(3)
    assert "v0000" in other.value.why


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_an_incomplete_draft_leaves_nothing_behind(tmp_path: Path, draft: Path, name: str):
    (draft / name).unlink()
    store = DraftStore(tmp_path / "drafts")
    with pytest.raises(TideError, match="is not a draft") as caught:
        store.publish(draft, **FIELDS)
    assert name in caught.value.why
    assert not store.root.exists()


def test_what_fails_half_way_leaves_nothing_behind(tmp_path: Path, draft: Path):
    store = DraftStore(tmp_path / "drafts")
    with pytest.raises(TypeError):  # a figure that JSON does not know
        store.publish(draft, **FIELDS | {"gate": {"gain": object()}})
    assert [path.name for path in store.root.iterdir()] == [".lock"]
    assert store.publish(draft, **FIELDS) == 0


def test_a_root_that_is_a_file(tmp_path: Path, draft: Path):
    (tmp_path / "drafts").write_text("")
    with pytest.raises(TideError, match="cannot publish"):
        DraftStore(tmp_path / "drafts").publish(draft, **FIELDS)


def test_publishers_in_several_processes(tmp_path: Path, draft: Path):
    root = tmp_path / "drafts"
    (root / ".publishing-killed").mkdir(parents=True)
    (root / ".publishing-killed" / "model.safetensors").write_bytes(b"half")
    script = (
        "import json, sys; from pathlib import Path; from tide_cli.drafts.store import DraftStore\n"
        "root, draft, fields = sys.argv[1:]\n"
        "for _ in range(5): print(DraftStore(Path(root)).publish(Path(draft), **json.loads(fields)))\n"
        "assert 'torch' not in sys.modules"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(tide_cli.__file__).parents[1])}
    command = [sys.executable, "-c", script, str(root), str(draft), json.dumps(FIELDS)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    published = [[int(line) for line in child.communicate()[0].split()] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sorted(version for versions in published for version in versions) == list(range(15))
    assert all(versions == sorted(versions) for versions in published)
    store = DraftStore(root)
    assert store.versions() == list(range(15))
    for version in store.versions():
        store.verify(version)
    assert not list(root.glob(".publishing-*"))


@given(st.integers(0, 10**6))
def test_version_names(version: int):
    name = version_name(version)
    assert parse_version(name) == parse_version(str(version)) == version_of_folder(name) == version
    assert len(name) >= 5


@pytest.mark.parametrize("text", ["", "v", "latest", "-1", "v1.0", "0x7", "٣"])
def test_what_is_no_version(text: str):
    with pytest.raises(UsageError):
        parse_version(text)
    assert version_of_folder(text) is None


def test_manifest_survives_its_own_json(tmp_path: Path):
    manifest = Manifest(created=1.5, files={"config.json": "00"}, **FIELDS)
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    assert Manifest.read(tmp_path) == manifest
