from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tide_cli.drafts.tensors import check_draft, draft_kinds, read_draft, vocab_map_hash
from tide_cli.errors import TideError


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    return {
        "d2t": torch.arange(8),
        "fc.weight": torch.randn(4, 12).bfloat16(),
        "lm_head.weight": torch.randn(8, 4).bfloat16(),
        "norm.weight": torch.ones(4, dtype=torch.bfloat16),
        "t2d": torch.ones(16, dtype=torch.bool),
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_one_value_that_is_not_finite_is_found_wherever_it_lies(value: float, dtype: torch.dtype):
    whole = {"fc.weight": torch.randn(37, 53, generator=torch.Generator().manual_seed(0)).to(dtype)}
    check_draft(whole, draft_kinds(whole))
    for place in range(0, whole["fc.weight"].numel(), 97):
        tensor = whole["fc.weight"].clone()
        tensor.view(-1)[place] = value
        with pytest.raises(TideError) as caught:
            check_draft({"fc.weight": tensor}, draft_kinds(whole))
        assert "not finite" in caught.value.why


def test_a_draft_of_the_same_make_passes(tensors: dict[str, Tensor]):
    check_draft(tensors, draft_kinds(tensors))


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("fc.weight", None, "missing"),
        ("fc.weight", torch.zeros(4, 8, dtype=torch.bfloat16), r"\[4, 8\], not \[4, 12\]"),
        ("norm.weight", torch.ones(4), "float32, not torch.bfloat16"),
        ("lm_head.weight", torch.full((8, 4), float("nan"), dtype=torch.bfloat16), "not finite"),
        ("lm_head.weight", torch.full((8, 4), float("-inf"), dtype=torch.bfloat16), "not finite"),
        ("extra.weight", torch.zeros(1), "does not know"),
    ],
)
def test_the_wrong_tensor_is_named(tensors: dict[str, Tensor], name: str, change: Tensor | None, why: str):
    expected = draft_kinds(tensors)
    if change is None:
        del tensors[name]
    else:
        tensors[name] = change
    with pytest.raises(TideError, match=name) as caught:
        check_draft(tensors, expected)
    assert re.search(why, caught.value.why)


def test_of_two_wrong_tensors_the_first_is_named(tensors: dict[str, Tensor]):
    expected = draft_kinds(tensors)
    tensors["norm.weight"] = tensors["fc.weight"] = torch.zeros(1)
    with pytest.raises(TideError, match=r"fc\.weight"):
        check_draft(tensors, expected)


@pytest.mark.parametrize("embedding", ["embed_tokens.weight", "model.embed_tokens.weight"])
def test_the_embedding_is_left_out(tmp_path: Path, tensors: dict[str, Tensor], embedding: str):
    save_file(tensors | {embedding: torch.zeros(16, 4)}, tmp_path / "model.safetensors")
    read = read_draft(tmp_path)
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("content", [None, b"", b"no tensors in here" * 9])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(TideError, match=r"model\.safetensors"):
        read_draft(tmp_path)


def test_the_hash_of_a_vocabulary_map():
    d2t = torch.tensor([0, 5, 5, 9])
    expected = hashlib.sha256(b"".join(int(value).to_bytes(8, "little") for value in d2t)).hexdigest()
    assert vocab_map_hash(d2t) == vocab_map_hash(d2t.int()) == expected
    assert vocab_map_hash(torch.tensor([0, 5, 9, 5])) != expected
