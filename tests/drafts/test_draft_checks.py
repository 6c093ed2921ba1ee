from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tide_cli.drafts.checks import publish_foreign
from tide_cli.drafts.export import export_draft
from tide_cli.drafts.fit import tensor_names
from tide_cli.drafts.make import why_not_in_place
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import read_draft, vocabulary_ids
from tide_cli.errors import TideError, UsageError

TARGET = {"hidden_size": 8, "vocab_size": 32}


def take(folder: Path, store: DraftStore, target: str = "made-up", **more: Any) -> int:
    """more: arguments of publish_foreign, and values of the target's config.json."""
    arguments = {name: more.pop(name) for name in ("lend", "say", "beside") if name in more}
    values = {"target_revision": "r", "target_config": TARGET | more, "remedy": "do this"}
    return publish_foreign(folder, store, target=target, **values, **arguments)


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
        ({"tensors": {"d2t": torch.zeros(12)}}, "d2t does not fit: its dtype"),
        ({"tensors": {"d2t": torch.arange(12).flip(0) * 2}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12) + 21}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12) - 1}}, "d2t must map"),
        ({"tensors": {"d2t": torch.arange(12) + 1}}, "t2d must mark"),
        ({"config": {"hidden_size": 16}}, "its hidden_size is 16, the target's 8"),
        ({"config": {"draft_vocab_size": None}}, "draft_vocab_size is missing"),
        ({"config": {"draft_vocab_size": True}}, "draft_vocab_size is True"),
        ({"config": {"num_attention_heads": 4}}, "o_proj"),
        ({"tensors": {"fc.weight": torch.ones(8, 24, dtype=torch.int8)}}, "fc.weight does not fit: its dtype"),
        ({"tensors": {"fc.weight": torch.ones(8, 24).to(torch.float8_e4m3fn)}}, "fc.weight does not fit: its dtype"),
        ({"tensors": {"norm.weight": torch.ones(8, dtype=torch.bool)}}, "norm.weight does not fit: its dtype"),
        ({"tensors": {"norm.weight": torch.ones(8, dtype=torch.complex64)}}, "norm.weight does not fit: its dtype"),
        ({"tensors": {"d2t": torch.zeros(12, dtype=torch.bool), "t2d": None}}, "d2t does not fit: its dtype"),
        ({"tensors": {"t2d": torch.ones(32, dtype=torch.complex64)}}, "t2d does not fit: its dtype"),
        ({"tensors": {"d2t": torch.tensor(3), "t2d": None}}, "d2t does not fit: its shape"),
        ({"tensors": {"d2t": torch.zeros(3, 4, dtype=torch.int64), "t2d": None}}, "d2t does not fit: its shape"),
        ({"tensors": {"lm_head.weight": torch.tensor(1.0), "d2t": None}}, "it has no d2t"),
        ({"config": {"rms_norm_eps": "x"}}, "rms_norm_eps is 'x', not a positive number"),
        ({"config": {"rope_theta": True}}, "rope_theta is True, not a positive number"),
        ({"config": {"max_position_embeddings": 1e3}}, "max_position_embeddings is 1000.0"),
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
    with pytest.raises(TideError, match=r"model\.safetensors is damaged") as raised:
        take(out, store)
    assert raised.value.remedy == "copy the draft again, or use another one"
    (out / "manifest.json").write_text('{"of": "another program"}')
    assert take(out, store) == 1


def test_weights_that_are_a_folder(tmp_path: Path, make_draft: Callable[..., Path]):
    folder = make_draft()
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(TideError, match=r"model\.safetensors is damaged") as raised:
        take(folder, DraftStore(tmp_path / "drafts"))
    assert raised.value.why == "it is a folder"


def test_weights_that_are_a_pipe(tmp_path: Path, make_draft: Callable[..., Path]):
    folder = make_draft()
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    assert tensor_names(folder) is None
    with pytest.raises(TideError, match=r"model\.safetensors is damaged") as raised:
        take(folder, DraftStore(tmp_path / "drafts"))
    assert raised.value.why == "something else is in its place"


def test_an_export_that_fails_leaves_no_folder(
    tmp_path: Path, publish: Callable[..., int], monkeypatch: pytest.MonkeyPatch
):
    publish()
    store = DraftStore(tmp_path / "state" / "drafts")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tide_cli.drafts.export.copy_file", full)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(TideError, match="cannot export"):
        export_draft(store, 0, tmp_path / "made" / "for" / "it")
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_version_is_not_exported(tmp_path: Path, publish: Callable[..., int]):
    publish()
    store = DraftStore(tmp_path / "state" / "drafts")
    (store.path(0) / "config.json").write_text("{}")
    with pytest.raises(TideError, match="damaged"):
        export_draft(store, 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()


HEAD = torch.arange(12 * 8, dtype=torch.float32).reshape(12, 8)


def lend() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(12) * 2, HEAD


def published(store: DraftStore, version: int = 0) -> tuple[dict, dict]:
    return read_draft(store.path(version)), json.loads((store.path(version) / "config.json").read_text())


def test_a_draft_that_shares_the_targets_head_gets_rows_of_it(tmp_path: Path, make_draft: Callable[..., Path]):
    store = DraftStore(tmp_path / "drafts")
    parts = {"lm_head.weight": None, "d2t": None, "t2d": None}
    folder = make_draft(tensors=parts, config={"draft_vocab_size": None})
    said: list[str] = []
    take(folder, store, lend=lend, say=said.append)
    tensors, config = published(store)
    assert torch.equal(tensors["lm_head.weight"], HEAD)
    assert torch.equal(vocabulary_ids(tensors["d2t"]), torch.arange(12) * 2)
    assert tensors["t2d"].nonzero().flatten().tolist() == list(range(0, 24, 2))
    assert config["draft_vocab_size"] == 12
    assert "starts with the target's, for 12 tokens" in said[0]
    assert "draft_vocab_size" not in json.loads((folder / "config.json").read_text())
    with pytest.raises(TideError, match="not complete") as caught:
        take(folder, store)  # where the target is not at hand
    assert "--draft" in caught.value.lines()[1]
    assert store.versions() == [0]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"lm_head.weight": None}, "no lm_head.weight"),
        ({"d2t": None, "t2d": None}, "no d2t"),
        ({"lm_head.weight": None, "d2t": None, "t2d": None}, "no d2t"),  # which 12 tokens it learned to propose
    ],
)
def test_half_of_head_and_map_is_refused_whoever_lends(
    tmp_path: Path, make_draft: Callable[..., Path], parts: dict, words: str
):
    store = DraftStore(tmp_path / "drafts")
    with pytest.raises(TideError, match="cannot be served: a part is missing") as caught:
        take(make_draft(tensors=parts), store, lend=lend)
    assert words in caught.value.lines()[0]
    assert store.versions() == []


def test_a_head_for_every_token_needs_no_map(tmp_path: Path, make_draft: Callable[..., Path]):
    store = DraftStore(tmp_path / "drafts")
    parts = {"lm_head.weight": torch.ones(32, 8), "d2t": None, "t2d": None}
    take(make_draft(tensors=parts, config={"draft_vocab_size": None}), store)
    tensors, config = published(store)
    assert config["draft_vocab_size"] == 32
    assert vocabulary_ids(tensors["d2t"]).tolist() == list(range(32))
    assert bool(tensors["t2d"].all())


def test_what_follows_from_the_rest_is_filled_in(tmp_path: Path, make_draft: Callable[..., Path]):
    store = DraftStore(tmp_path / "drafts")
    folder = make_draft(tensors={"t2d": None}, config={"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 40})
    tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in read_draft(folder).items()}
    (folder / "model.safetensors").unlink()
    torch.save(tensors | {"embed_tokens.weight": torch.ones(32, 8)}, folder / "pytorch_model.bin")
    take(folder, store)
    made, config = published(store)
    assert torch.equal(made["midlayer.mlp.up_proj.weight"], tensors["layers.0.mlp.up_proj.weight"])
    assert made["t2d"].nonzero().flatten().tolist() == list(range(0, 24, 2))
    assert "embed_tokens.weight" not in made
    assert (config["architectures"], config["num_hidden_layers"]) == (["LlamaForCausalLMEagle3"], 1)


def pickled(folder: Path, content: object) -> Path:
    """The same draft with its weights in a pickled file: `content` are its bytes, or what is pickled."""
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    return folder


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x02junk", b"PK\x03\x04" + bytes(50), b"\x80\x02]]."])
def test_a_pickled_file_that_is_none(tmp_path: Path, make_draft: Callable[..., Path], content: bytes):
    with pytest.raises(TideError, match=r"cannot read .*pytorch_model\.bin") as raised:
        take(pickled(make_draft(), content), DraftStore(tmp_path / "drafts"))
    assert raised.value.why == "it is damaged, or holds more than tensors"


def test_a_pickled_file_that_was_cut_short(tmp_path: Path, make_draft: Callable[..., Path]):
    folder = make_draft()
    path = pickled(folder, read_draft(folder)) / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(TideError, match=r"cannot read .*pytorch_model\.bin"):
        take(folder, DraftStore(tmp_path / "drafts"))


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({5: torch.ones(1)}, "tensor 5 does not fit"),
        ({"norm.weight": torch.ones(8).to_sparse()}, "norm.weight is sparse, quantised or without values"),
        ({"norm.weight": torch.ones(8, device="meta")}, "norm.weight is sparse, quantised or without values"),
        ({"norm.weight": torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.quint8)}, "norm.weight is sparse"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*quantize", "ignore:TypedStorage")
def test_a_pickled_tensor_that_no_engine_takes(tmp_path: Path, make_draft: Callable[..., Path], odd: dict, words: str):
    folder = make_draft()
    with pytest.raises(TideError) as raised:
        take(pickled(folder, read_draft(folder) | odd), DraftStore(tmp_path / "drafts"))
    assert words in raised.value.lines()[0]


def test_pickled_tensors_may_share_memory(tmp_path: Path, make_draft: Callable[..., Path]):
    folder, store = make_draft(), DraftStore(tmp_path / "drafts")
    tensors = read_draft(folder)
    both = torch.arange(16.0)
    tensors |= {"norm.weight": both[:8], "midlayer.hidden_norm.weight": both[4:12]}
    take(pickled(folder, tensors), store)
    made, _ = published(store)
    assert made["norm.weight"].tolist() == list(range(8))
    assert made["midlayer.hidden_norm.weight"].tolist() == list(range(4, 12))


def test_a_pickled_file_with_more_than_tensors_is_not_loaded(tmp_path: Path, make_draft: Callable[..., Path]):
    folder = make_draft()
    (folder / "model.safetensors").unlink()
    torch.save({"fc.weight": tmp_path}, folder / "pytorch_model.bin")
    with pytest.raises(TideError, match=r"cannot read .*pytorch_model\.bin"):
        take(folder, DraftStore(tmp_path / "drafts"))


YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 512,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}


@pytest.mark.parametrize(
    ("config", "served", "expected"),
    [
        ({"max_position_embeddings": 2048}, 4096, 4096),
        ({"max_position_embeddings": 8192}, 4096, 8192),
        ({}, 4096, 4096),
        ({"max_position_embeddings": 2048, "rope_scaling": LLAMA3}, 4096, 4096),
        ({"max_position_embeddings": 2048, "rope_scaling": YARN}, 4096, 2048),
    ],
)
def test_positions_reach_as_far_as_the_targets(
    tmp_path: Path, make_draft: Callable[..., Path], config: dict, served: int, expected: int
):
    store = DraftStore(tmp_path / "drafts")
    take(make_draft(config=config), store, max_position_embeddings=served)
    assert published(store)[1]["max_position_embeddings"] == expected


def test_drafts_of_other_layers_do_not_share_samples(tmp_path: Path, make_draft: Callable[..., Path]):
    store = DraftStore(tmp_path / "drafts")
    other = make_draft(config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 5, 7]}})
    with pytest.raises(TideError, match="cannot join"):
        take(other, store, beside={"hidden_size": 8})
    assert take(other, store, beside=json.loads((other / "config.json").read_text())) == 0


def test_an_engine_built_for_another_rope_cannot_take_a_draft(make_draft: Callable[..., Path]):
    one, other = make_draft("one"), make_draft("other", config={"rope_theta": 500_000.0})
    assert why_not_in_place(one, make_draft("third", seed=3)) is None
    assert why_not_in_place(one, other) == "rope_theta in config.json is 500000.0, not None"
    half = make_draft("half", tensors={"norm.weight": torch.ones(8).bfloat16()})
    assert why_not_in_place(one, half) == "the dtype of norm.weight is bfloat16, not float32"
    more = make_draft("more", tensors={"more": torch.ones(1)})
    assert (why_not_in_place(one, more), why_not_in_place(more, one)) == ("more is not known", "more is missing")
