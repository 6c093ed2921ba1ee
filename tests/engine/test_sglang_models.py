"""SGLang's own model classes, built at full size on the meta device: they are what TIDE's tables and its swap say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tide_cli.targets.known import known_targets

TARGETS = ("gpt-oss-120b", "gpt-oss-20b", "llama-3.1-8b-instruct", "qwen3-8b", "qwen3-30b-a3b")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, Path(__file__).parent / "sglang_models.py", tmp_path_factory.mktemp("model")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_captures_the_layers_that_eagle3_reads(built: dict[str, Any], name: str) -> None:
    layers = known_targets()[name].shape.layers
    usual = [2, layers // 2, layers - 3]
    assert built["targets"][name]["layers"] == usual
    assert built["targets"][name]["named_layers"] == usual  # the ids that a draft's config names count from outputs


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_is_as_large_as_the_plan_says(built: dict[str, Any], name: str) -> None:
    """gpt-oss with its experts in MXFP4, whose embedding and head stay in bfloat16: the draft shares the embedding."""
    shape = known_targets()[name].shape
    assert built["targets"][name]["bytes"] == shape.weight_bytes
    assert built["targets"][name]["embedding"] == [shape.vocab_size, shape.hidden_size]
    assert built["targets"][name]["dtypes"] == ["torch.bfloat16", "torch.bfloat16"]


@pytest.mark.parametrize("name", TARGETS)
def test_a_draft_has_the_weights_that_training_counts_with(built: dict[str, Any], name: str) -> None:
    assert built["targets"][name]["draft_parameters"] == known_targets()[name].shape.usual_draft.parameters


@pytest.mark.parametrize("name", TARGETS)
def test_last_states_are_off_unless_tide_asks_for_them(built: dict[str, Any], name: str) -> None:
    assert built["targets"][name]["keeps_last"] is False


def test_a_swap_writes_every_weight_of_a_draft_but_the_embedding_in_place(built: dict[str, Any]) -> None:
    assert built["swap"]["moved"] == []  # CUDA graphs hold these addresses
    assert built["swap"]["unwritten"] == ["model.embed_tokens.weight"]  # the target's own tensor
    assert built["swap"]["hot_token_ids"] == list(range(0, 320, 5))


def test_each_rank_loads_its_part_of_a_draft(built: dict[str, Any]) -> None:
    assert built["ranks"] == {"head": True, "attention": True, "fc": True}
