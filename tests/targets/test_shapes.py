"""Shapes: what configs/*.toml say, and what is read from a checkpoint's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tide_cli.errors import TideError, UsageError
from tide_cli.hardware.plan_settings import target_shape
from tide_cli.paths import Paths
from tide_cli.targets import (
    Target,
    TargetShape,
    describe,
    known_targets,
    read_draft_shape,
    read_target_shape,
    resolve_target,
)
from tide_cli.targets.known import configs_folder

KNOWN = known_targets()


def test_every_known_target_has_a_shape_and_a_source() -> None:
    assert {"gpt-oss-120b", "gpt-oss-20b", "llama-3.1-8b-instruct", "qwen3-8b", "qwen3-30b-a3b"} <= set(KNOWN)
    assert [name for name, target in KNOWN.items() if target.shape is None] == []
    texts = {path.stem: path.read_text() for path in configs_folder().glob("*.toml")}
    assert [name for name, text in texts.items() if "config.json" not in text and "GGUF" not in text] == []


def dense(shape: TargetShape, *, tied: bool = False, qk_norm: bool = False) -> int:
    """Parameters of a Llama-like model: embedding, head, attention, MLP, norms."""
    hidden, head = shape.hidden_size, shape.head_dim
    attention = 2 * hidden * shape.heads * head + 2 * hidden * shape.kv_heads * head
    mlp = 3 * hidden * shape.intermediate_size
    if shape.experts:
        mlp = shape.experts * (3 * hidden * shape.expert_intermediate_size + hidden)
    layer = attention + mlp + 2 * hidden + (2 * head if qk_norm else 0)
    return (1 if tied else 2) * shape.vocab_size * hidden + shape.layers * layer + hidden


@pytest.mark.parametrize(
    ("name", "qk_norm"), [("llama-3.1-8b-instruct", False), ("qwen3-8b", True), ("qwen3-30b-a3b", True)]
)
def test_bytes_on_disk_follow_from_the_shape(name: str, qk_norm: bool) -> None:
    shape = KNOWN[name].shape
    assert 2 * dense(shape, qk_norm=qk_norm) == shape.weight_bytes


def test_bytes_of_the_embedded_target() -> None:
    shape = KNOWN["smollm2-135m"].shape
    assert 0 <= shape.weight_bytes - 2 * dense(shape, tied=True) < 2**20  # the file has a header


@pytest.mark.parametrize("name", ["gpt-oss-120b", "gpt-oss-20b"])
def test_bytes_of_mxfp4_experts(name: str) -> None:
    """Experts take 4.25 bits a weight and bfloat16 biases; attention has biases and a sink for each head."""
    shape = KNOWN[name].shape
    hidden, inner, head = shape.hidden_size, shape.expert_intermediate_size, shape.head_dim
    experts = shape.experts * (3 * hidden * inner * 17 // 32 + 2 * (2 * inner + hidden))
    router = 2 * shape.experts * (hidden + 1)
    query, key = shape.heads * head, shape.kv_heads * head
    attention = 2 * (2 * hidden * query + 2 * hidden * key + query + 2 * key + hidden + shape.heads)
    layers = shape.layers * (experts + router + attention + 2 * 2 * hidden)
    assert layers + 2 * hidden + 2 * 2 * shape.vocab_size * hidden == shape.weight_bytes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt-oss-120b", 305_798_400),
        ("gpt-oss-20b", 307_641_600),
        ("llama-3.1-8b-instruct", 424_689_664),
        ("qwen3-30b-a3b", 145_235_968),
        ("smollm2-135m", 12_167_424),
    ],
)
def test_weights_of_the_drafts(name: str, parameters: int) -> None:
    assert KNOWN[name].shape.usual_draft.parameters == parameters


def checkpoint(folder: Path, **config: object) -> Path:
    values = {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(values))
    for part in range(2):
        (folder / f"model-{part}.safetensors").write_bytes(bytes(500))
    return folder


def test_a_checkpoint_folder(tmp_path: Path) -> None:
    shape = read_target_shape(checkpoint(tmp_path))
    assert (shape.kv_heads, shape.head_dim, shape.weight_bytes, shape.element_bytes) == (8, 8, 1000, 2)
    assert (shape.experts, shape.quantisation, shape.sliding_layers) == (0, None, 0)
    assert shape.usual_draft.vocab_size == 1000


def test_the_weights_are_those_that_the_index_names(tmp_path: Path) -> None:
    index = checkpoint(tmp_path) / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-0.safetensors", "b": "model-0.safetensors"}}))
    assert read_target_shape(tmp_path).weight_bytes == 500


def test_the_hub_id_of_a_known_target_is_served_as_that(tmp_path: Path) -> None:
    paths = Paths.under(tmp_path, tmp_path)
    target = resolve_target("openai/gpt-oss-120b", paths)
    assert target.name == "openai--gpt-oss-120b"
    assert target.sglang_arguments == resolve_target("gpt-oss-120b", paths).sglang_arguments != ()
    assert target_shape(target) == target_shape(resolve_target("gpt-oss-120b", paths))
    other = resolve_target("someone/gpt-oss-120b", paths)
    assert (other.sglang_arguments, target_shape(other)) == ((), None)


def test_a_checkpoint_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    """A shard is missing, a file ends in its header, another before its tensors; an index that is none."""
    paths = Paths.under(tmp_path, tmp_path)
    checkpoint(tmp_path)
    assert resolve_target(str(tmp_path), paths).folder == tmp_path
    header = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    whole = len(header).to_bytes(8, "little") + header + bytes(8)
    file = tmp_path / "model-1.safetensors"
    for content in (b"\x09", whole[:40], whole[:-1]):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="is not whole") as refused:
            resolve_target(str(tmp_path), paths)
        assert refused.value.why == "of its 2 safetensors files it lacks the end of model-1.safetensors"
    file.write_bytes(whole)
    assert resolve_target(str(tmp_path), paths).folder == tmp_path
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: f"model-{name}.safetensors" for name in "1234"}}))
    with pytest.raises(UsageError) as refused:
        resolve_target(str(tmp_path), paths)
    assert refused.value.why == "of its 4 safetensors files it lacks model-2.safetensors and 2 more"
    index.write_text(json.dumps({"weight_map": ["model-1.safetensors"]}))
    with pytest.raises(UsageError, match="is not a checkpoint"):
        resolve_target(str(tmp_path), paths)


def test_a_quantised_mixture_with_windows_inside_a_larger_model(tmp_path: Path) -> None:
    inner = {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 100_000,
        "max_position_embeddings": 512,
        "num_local_experts": 16,
        "moe_intermediate_size": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "dtype": "float32",
    }
    shape = read_target_shape(checkpoint(tmp_path, text_config=inner, quantization_config={"quant_method": "mxfp4"}))
    assert (shape.experts, shape.expert_intermediate_size, shape.sliding_layers) == (16, 32, 2)
    assert (shape.quantisation, shape.element_bytes, shape.usual_draft.vocab_size) == ("mxfp4", 4, 32_000)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TideError, match="cannot be planned for"):
        read_target_shape(tmp_path)
    checkpoint(tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(TideError) as refused:
        read_target_shape(tmp_path)
    assert "no safetensors" in refused.value.lines()[0]
    with pytest.raises(TideError, match="EAGLE3 draft"):
        read_draft_shape(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0, not a whole number above 0"),
        ({"num_attention_heads": -2}, "num_attention_heads is -2"),
        ({"num_attention_heads": 65}, "num_attention_heads is 65, more than hidden_size"),
        ({"vocab_size": "1000"}, "vocab_size is '1000'"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_key_value_heads": [1]}, "num_key_value_heads is a list"),
        ({"hidden_size": float("inf")}, "Infinity is no number"),
        ({"text_config": [1]}, "text_config is no JSON object"),
        ({"quantization_config": [1]}, "its contents are not what they should be"),
    ],
)
def test_figures_that_cannot_be(wrong: dict[str, object], words: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, **wrong)
    with pytest.raises(TideError) as refused:
        read_target_shape(folder)
    assert words in refused.value.why
    if not wrong.keys() & {"num_attention_heads", "num_key_value_heads", "quantization_config"}:
        with pytest.raises(UsageError) as refused:
            describe(folder, Target("t", folder=folder))
        assert words in refused.value.why


@pytest.mark.parametrize("text", ["[1]", "[" * 100_000, "{"])
def test_a_config_that_is_no_object(text: str, tmp_path: Path) -> None:
    (checkpoint(tmp_path) / "config.json").write_text(text)
    with pytest.raises(TideError, match="cannot be planned for"):
        read_target_shape(tmp_path)
    with pytest.raises(TideError, match="EAGLE3 draft"):
        read_draft_shape(tmp_path)
    with pytest.raises(UsageError, match="cannot be served"):
        describe(tmp_path, Target("t", folder=tmp_path))


def test_a_draft_folder(tmp_path: Path) -> None:
    checkpoint(tmp_path, draft_vocab_size=500, num_key_value_heads=4)
    draft = read_draft_shape(tmp_path)
    # fc 3*64*64; q 64*128, k and v 2*32*128, o 64*64; MLP 3*128*64; four norms; head 500*64
    assert draft.parameters == 12_288 + 8192 + 8192 + 4096 + 24_576 + 256 + 32_000
