from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tide_cli.drafts.checks import publish_foreign
from tide_cli.drafts.export import export_draft
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError, UsageError

TARGET = {"hidden_size": 8, "vocab_size": 32}


def take(folder: Path, store: DraftStore, target: str = "made-up", **config: int) -> int:
    return publish_foreign(
        folder, store, target=target, target_revision="r", target_config=TARGET | config, remedy="do this"
    )


def test_a_draft_from_elsewhere_becomes_a_version_without_a_parent(tmp_path: Path, make_draft: Callable[..., Path]):
    store = DraftStore(tmp_path / "drafts")
    assert take(make_draft(), store) == 0
    assert take(make_draft("half", tensors={"norm.weight": torch.ones(8).bfloat16()}), store) == 1
    manifest = store.manifest(1)
    assert (manifest.parent, manifest.gate, manifest.target, manifest.tokens) == (None, None, "made-up", 0)
    store.verify(1)


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ({"tensors": {"fc.weight": None}}, "fc.weight does not fit: it is missing"),
        ({"tensors": {"lm_head.weight": torch.full((12, 8), float("nan"))}}, "not finite"),
        ({"tensors": {"more": torch.ones(1)}}, "more does not fit"),
        ({"tensors": {"d2t": torch.zeros(12)}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12).flip(0) * 2}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12) + 21}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12) - 1}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12) + 1}}, "t2d must mark"),
        ({"config": {"hidden_size": 16}}, "its hidden_size is 16, the target's 8"),
        ({"config": {"draft_vocab_size": None}}, "draft_vocab_size is missing"),
        ({"config": {"draft_vocab_size": True}}, "draft_vocab_size is True"),
        ({"config": {"num_attention_heads": 4}}, "o_proj"),
    ],
)
def test_what_does_not_fit_is_named_and_not_published(
    tmp_path: Path, make_draft: Callable[..., Path], draft: dict, words: str
):
    store = DraftStore(tmp_path / "drafts")
    with pytest.raises(TideError) as caught:
        take(make_draft(**draft), store)
    assert words in " ".join(caught.value.lines())
    assert caught.value.lines()[-1] == "do this"
    assert store.versions() == []


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_folder_without_a_configuration(tmp_path: Path, make_draft: Callable[..., Path], content: str | None):
    folder = make_draft()
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(TideError, match=r"cannot read .*config\.json"):
        take(folder, DraftStore(tmp_path / "drafts"))


def test_an_exported_version_comes_back_unchanged(tmp_path: Path, publish: Callable[..., int]):
    publish()
    store = DraftStore(tmp_path / "state" / "drafts")
    out = tmp_path / "out"
    out.mkdir()  # an empty folder is taken
    export_draft(store, 0, out)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "manifest.json", "model.safetensors"]
    assert json.loads((out / "config.json").read_text())["architectures"] == ["LlamaForCausalLMEagle3"]
    assert take(out, store) == 1
    assert store.manifest(1).files == store.manifest(0).files
    with pytest.raises(UsageError, match="not an empty folder"):
        export_draft(store, 0, out)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_exported_version_is_checked_by_its_manifest(tmp_path: Path, publish: Callable[..., int]):
    publish()
    store, out = DraftStore(tmp_path / "state" / "drafts"), tmp_path / "out"
    export_draft(store, 0, out)
    with pytest.raises(TideError, match="does not belong to other"):
        take(out, store, target="other")
    weights = bytearray((out / "model.safetensors").read_bytes())
    weights[-100] ^= 1  # of a matrix; the last ones are t2d
    (out / "model.safetensors").write_bytes(weights)
    with pytest.raises(TideError, match=r"model\.safetensors is damaged"):
        take(out, store)
    (out / "manifest.json").write_text('{"of": "another program"}')
    assert take(out, store) == 1


def test_a_damaged_version_is_not_exported(tmp_path: Path, publish: Callable[..., int]):
    publish()
    store = DraftStore(tmp_path / "state" / "drafts")
    (store.path(0) / "config.json").write_text("{}")
    with pytest.raises(TideError, match="damaged"):
        export_draft(store, 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()
