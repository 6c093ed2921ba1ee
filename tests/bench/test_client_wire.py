"""The client reads what SGLang's own classes write, and SGLang accepts what the client asks for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sglang.srt.entrypoints.openai.protocol import (
    ChatCompletionRequest,
    ChatCompletionStreamResponse,
    SglExt,
    SpecTokensDetails,
)
from sglang.srt.entrypoints.openai.sse_utils import build_sse_content
from sglang.srt.entrypoints.openai.usage_processor import UsageProcessor
from stub_engine import StubEngine

from tide_cli.bench.client import send_all
from tide_cli.bench.requests import Request


class SGLangStub(StubEngine):
    """Sends the events that SGLang's server builds for an answer of six tokens in three steps."""

    def events(self, script: dict[str, Any]) -> list[dict[str, Any]]:
        same = {"chunk_id": "1", "created": 1, "model": "m", "index": 0}
        usages = [UsageProcessor.calculate_token_usage(prompt_tokens=7, completion_tokens=n) for n in (2, 5, 6)]
        details = SpecTokensDetails(
            spec_verify_ct=3,
            spec_num_correct_drafts=3,
            spec_num_proposed_drafts=9,
            spec_correct_drafts_histogram=[1, 1, 1],
        )
        end = {"id": "1", "created": 1, "model": "m", "choices": []}
        speculation = ChatCompletionStreamResponse(**end, sglext=SglExt(spec_tokens_details=details))
        lines = [
            build_sse_content(**same, role="assistant", content=""),
            build_sse_content(**same, content="ab", usage=usages[0].model_dump()),
            build_sse_content(**same, content="cde", usage=usages[1].model_dump()),
            build_sse_content(**same, finish_reason="stop"),
            f"data: {speculation.model_dump_json()}",
            f"data: {ChatCompletionStreamResponse(**end, usage=usages[2]).model_dump_json()}",
        ]
        return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_an_answer_of_sglang() -> None:
    engine = SGLangStub()
    try:
        messages = ({"role": "user", "content": "Hello"},)
        (answer,) = asyncio.run(send_all(engine.url, "m", [Request(messages, 8)], concurrency=1))
    finally:
        engine.close()
    assert answer.error is None
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("abcde", 7, 6)
    assert (answer.verify_steps, answer.drafts, answer.accepted_steps) == (3, 9, (1, 1, 1))
    assert len(answer.token_times) == 6
    asked = ChatCompletionRequest(**engine.chats[0])
    assert asked.return_spec_tokens_details
    assert asked.stream_options.continuous_usage_stats
    assert asked.rid == engine.chats[0]["rid"]
    assert (asked.max_tokens, asked.temperature, asked.stream) == (8, 0.0, True)
