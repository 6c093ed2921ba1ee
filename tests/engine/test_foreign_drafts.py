"""What TIDE says of published drafts and of the parsers of known targets, beside what SGLang does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.models.gpt_oss import GptOssForCausalLM
from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.models.qwen3 import Qwen3ForCausalLM
from sglang.srt.parser.reasoning_parser import ReasoningParser

from tide_cli.drafts.fit import aux_layers
from tide_cli.targets.known import known_targets


@pytest.mark.parametrize("ids", [None, [1, 17, 32], [24, 30, 34], [24, 30, 36]])
@pytest.mark.parametrize("model", [GptOssForCausalLM, LlamaForCausalLM, Qwen3ForCausalLM])
def test_the_layers_that_sglang_captures(model: type, ids: list[int] | None) -> None:
    target = SimpleNamespace(
        pp_group=SimpleNamespace(is_last_rank=True),
        config=SimpleNamespace(num_hidden_layers=36),
        model=SimpleNamespace(),
    )
    model.set_eagle3_layers_to_capture(target, ids)
    config = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}
    assert aux_layers(config, 36, model.__name__) == tuple(target.model.layers_to_capture)


@pytest.mark.parametrize(("longest", "accepted"), [(2048, False), (4096, True), (8192, True)])
def test_sglang_refuses_a_draft_that_reaches_less_far_than_its_target(
    longest: int, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SGLANG_IS_IN_CI", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"):
        monkeypatch.delenv(name, raising=False)
    text = SimpleNamespace(max_position_embeddings=longest)
    draft = SimpleNamespace(is_draft_model=True, hf_text_config=text, hf_config=SimpleNamespace(architectures=[]))
    if accepted:
        ModelConfig._derive_context_length(draft, 4096)
        assert draft.context_len == 4096
    else:
        with pytest.raises(ValueError, match="greater than the derived context_length"):
            ModelConfig._derive_context_length(draft, 4096)


def test_the_parsers_of_the_known_targets_exist() -> None:
    known = {
        "--reasoning-parser": ReasoningParser.DetectorMap,
        "--tool-call-parser": FunctionCallParser.ToolCallParserEnum,
    }
    named = {
        name: dict(zip(t.sglang_arguments[::2], t.sglang_arguments[1::2], strict=True))
        for name, t in known_targets().items()
    }
    for name, arguments in named.items():
        for flag, parser in arguments.items():
            assert parser in known[flag], name
    assert "--tool-call-parser" in named["llama-3.1-8b-instruct"]
    assert all(len(named[name]) == 2 for name in ("gpt-oss-120b", "gpt-oss-20b", "qwen3-8b", "qwen3-30b-a3b"))
