"""What TIDE refuses before SGLang's scheduler sees it."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.managers.tokenizer_manager import TokenizerManager

from tide_cli.engine.plugin.request_check import after_check, after_count

MANAGER = SimpleNamespace(model_config=SimpleNamespace(vocab_size=100))


@pytest.mark.parametrize("ids", [None, [], [0, 99]])  # without ids where the prompt comes in embeddings
@pytest.mark.parametrize("asked", [None, 0, 1, 100])
def test_what_there_can_be(asked: int | None, ids: list[int] | None) -> None:
    embeds = None if ids else [[0.1]]
    request = SimpleNamespace(top_logprobs_num=asked, input_embeds=embeds)
    assert after_check("result", MANAGER, request, ids) == "result"
    assert after_check("result", MANAGER, SimpleNamespace(), [0, 99]) == "result"


@pytest.mark.parametrize("asked", [-1, 101, 10**9])
def test_more_alternatives_than_tokens(asked: int) -> None:
    with pytest.raises(ValueError, match="top_logprobs"):
        after_check("result", MANAGER, SimpleNamespace(top_logprobs_num=asked), [1])


@pytest.mark.parametrize("foreign", [-1, 100, 10**9])
def test_a_token_that_there_is_not(foreign: int) -> None:
    with pytest.raises(ValueError, match="token ids"):
        after_check("result", MANAGER, SimpleNamespace(top_logprobs_num=0), [5, foreign, 7])


def test_a_prompt_without_a_token() -> None:
    with pytest.raises(ValueError, match="no token"):
        after_check("result", MANAGER, SimpleNamespace(top_logprobs_num=0, input_embeds=None), [])


def test_more_answers_than_one_request_may_ask_for() -> None:
    for asked in (1, 128):
        assert after_count("result", SimpleNamespace(parallel_sample_num=asked)) == "result"
    for asked in (-1, 0, 129, 10**9, "2", None):
        with pytest.raises(ValueError, match="n must be"):
            after_count("result", SimpleNamespace(parallel_sample_num=asked))


def test_sglang_does_not_refuse_it_itself() -> None:
    """Where this fails, SGLang does, and engine/plugin/request_check.py can go."""
    request = ChatCompletionRequest(model="m", messages=[], logprobs=True, top_logprobs=10**6)
    assert request.top_logprobs == 10**6
    many = GenerateReqInput(text="a", sampling_params={"n": 10**6})
    many.is_single = True
    many._handle_parallel_sampling()
    assert many.parallel_sample_num == 10**6
    check = inspect.unwrap(TokenizerManager._validate_one_request)
    assert not {"vocab_size", "top_logprobs_num"} & set(check.__code__.co_names)
