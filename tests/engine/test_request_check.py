"""What TIDE refuses before SGLang's scheduler sees it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.managers.tokenizer_manager import TokenizerManager

from tide_cli.engine.plugin.request_check import after_check

MANAGER = SimpleNamespace(model_config=SimpleNamespace(vocab_size=100))


@pytest.mark.parametrize("asked", [None, 0, 1, 100])
def test_what_there_can_be(asked: int | None) -> None:
    assert after_check("result", MANAGER, SimpleNamespace(top_logprobs_num=asked)) == "result"


@pytest.mark.parametrize("asked", [-1, 101, 10**9])
def test_what_would_end_the_scheduler(asked: int) -> None:
    with pytest.raises(ValueError, match="top_logprobs"):
        after_check("result", MANAGER, SimpleNamespace(top_logprobs_num=asked))


def test_sglang_does_not_refuse_it_itself() -> None:
    """Where this fails, SGLang does, and engine/plugin/request_check.py can go."""
    request = ChatCompletionRequest(model="m", messages=[], logprobs=True, top_logprobs=10**6)
    assert request.top_logprobs == 10**6
    asked = SimpleNamespace(top_logprobs_num=10**6, token_ids_logprob=None)
    assert TokenizerManager._validate_token_ids_logprob(MANAGER, asked) is None
