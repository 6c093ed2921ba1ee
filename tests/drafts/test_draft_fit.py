"""What config.json and the names of tensors tell of a draft, before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tide_cli.drafts.fit import TargetFacts, aux_layers, lacks, misfit, same_aux_layers, tensor_names

TARGET = TargetFacts(hidden_size=2880, vocab_size=201_088, layers=36, architecture="GptOssForCausalLM")
LMSYS = {"hidden_size": 2880, "vocab_size": 201_088, "draft_vocab_size": 32_000}


def eagle(ids: object, **more: object) -> dict[str, object]:
    return {**LMSYS, "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, **more}}


NVIDIA_V3 = eagle([24, 30, 36], norm_before_fc=True, use_aux_hidden_state=True)
NVIDIA_LONG = eagle([1, 17, 32], use_aux_hidden_state=True)


@pytest.mark.parametrize("config", [LMSYS, NVIDIA_LONG, eagle([24, 30, 36]), eagle(None), eagle([])])
def test_drafts_that_fit(config: dict[str, object]) -> None:
    assert misfit(config, TARGET) is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (NVIDIA_V3, "norm_before_fc"),
        ({**LMSYS, "norm_output": True}, "norm_output"),
        ({**LMSYS, "fc_norm": True}, "fc_norm"),
        (eagle([], use_aux_hidden_state=False), "use_aux_hidden_state is false"),
        (
            {"speculators_model_type": "eagle3"},
            "speculators, which SGLang does not read; take the EAGLE3 folder",
        ),
        ({**LMSYS, "hidden_size": 4096}, "its hidden_size is 4096, the target's 2880"),
        ({**LMSYS, "vocab_size": 128_256}, "its vocab_size is 128256"),
        ({**LMSYS, "target_hidden_size": 4096}, "target_hidden_size is 4096"),
        ({**LMSYS, "tie_word_embeddings": True}, "tie_word_embeddings"),
        ({**LMSYS, "num_aux_hidden_states": 5}, "it reads 5 hidden states"),
        ({**LMSYS, "num_aux_hidden_states": "3"}, "its num_aux_hidden_states is '3', not a number"),
        (eagle([1, 17]), "it reads 2 hidden states"),
        (eagle([1, 17, "32"]), "not three numbers"),
        (eagle([25, 31, 37]), "are not three layers of the target's 36"),
        (eagle([1, 17, 17]), "are not three layers"),
        (eagle([-2, 17, 32]), "are not three layers"),
    ],
)
def test_what_does_not_fit_is_named(config: dict[str, object], words: str) -> None:
    assert words in str(misfit(config, TARGET))


def test_only_gpt_oss_hands_on_its_last_state() -> None:
    other = TargetFacts(2880, 201_088, 36, "LlamaForCausalLM")
    assert misfit(eagle([24, 30, 34]), other) is None
    assert "three layers" in str(misfit(eagle([24, 30, 35]), other))
    assert "three layers" in str(misfit(eagle([24, 30, 36]), other))


def test_the_states_that_a_draft_reads() -> None:
    assert aux_layers(LMSYS, 36) == aux_layers(NVIDIA_LONG, 36) == (2, 18, 33)
    assert aux_layers(NVIDIA_V3, 36, "GptOssForCausalLM") == (24, 30, 36)
    assert same_aux_layers(LMSYS, NVIDIA_LONG)
    assert not same_aux_layers(LMSYS, NVIDIA_V3)
    assert not same_aux_layers(NVIDIA_LONG, eagle([1, 17, 31]))


def test_what_a_draft_must_have() -> None:
    assert lacks({"fc.weight", "lm_head.weight", "d2t"}, LMSYS) is None
    assert lacks({"fc.weight", "lm_head.weight"}, {**LMSYS, "draft_vocab_size": 201_088}) is None
    assert lacks({"fc.weight"}, {**LMSYS, "draft_vocab_size": None}) is None  # shares the target's head
    assert "no d2t" in str(lacks({"fc.weight", "lm_head.weight"}, LMSYS))
    assert "no d2t" in str(lacks({"fc.weight"}, LMSYS))
    assert "no lm_head.weight" in str(lacks({"fc.weight", "d2t"}, LMSYS))


def test_names_come_from_the_header_alone(make_draft: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_draft(tensors={"lm_head.weight": None})
    names = tensor_names(folder)
    assert names is not None
    assert {"fc.weight", "d2t", "midlayer.self_attn.q_proj.weight"} <= names
    assert "lm_head.weight" not in names
    (folder / "model.safetensors").write_bytes(b"\xff" * 40)
    assert tensor_names(folder) is None
    assert tensor_names(tmp_path) is None
