"""Chat requests to the engine's OpenAI-compatible API, answered with the figures that speculation is judged by."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import httpx

from tide_cli.bench.client import NOT_CAPTURED
from tide_cli.errors import TideError, reason
from tide_cli.workload.prompt import Prompt

_REQUEST_TIMEOUT = 600.0  # seconds: on a slow machine a queue of requests takes its time


@dataclass(frozen=True)
class Answer:
    """tokens: completion tokens; verify_steps: of the target, 0 where one token was all; seconds: the whole request."""

    domain: str
    tokens: int
    verify_steps: int
    seconds: float


def acceptance_length(answers: Iterable[Answer]) -> float | None:
    """Completion tokens / verify steps, each summed over the answers; None without a verify step."""
    answers = list(answers)
    steps = sum(answer.verify_steps for answer in answers)
    return sum(answer.tokens for answer in answers) / steps if steps else None


class ChatClient:
    """Greedy chat completions. May be used by `connections` threads at once."""

    def __init__(self, engine: str, model: str, connections: int) -> None:
        """engine: its base URL, without the /v1; model: the target's name."""
        self._model = model
        limits = httpx.Limits(max_connections=connections + 1, max_keepalive_connections=connections + 1)
        self._http = httpx.Client(base_url=engine, timeout=_REQUEST_TIMEOUT, limits=limits, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def ask(self, prompt: Prompt, max_tokens: int, *, captured: bool) -> Answer:
        """One completion. captured: False keeps it out of the spool. Raises TideError with the engine's reason."""
        request = {
            "model": self._model,
            "messages": prompt.openai(),
            "max_tokens": max_tokens,
            "temperature": 0,
            # SGLang's own: a choice then says how many verify steps it took (not with streaming)
            "return_meta_info": True,
        }
        if not captured:
            request["rid"] = NOT_CAPTURED + uuid.uuid4().hex
        started = time.monotonic()
        answer = self._post(request)
        seconds = time.monotonic() - started
        try:
            meta = answer["choices"][0]["meta_info"]
            return Answer(prompt.domain, int(meta["completion_tokens"]), int(meta.get("spec_verify_ct", 0)), seconds)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TideError("the engine's answer lacks its figures", why=repr(error)) from None

    def _post(self, request: dict[str, object]) -> dict[str, list]:
        try:
            answer = self._http.post("/v1/chat/completions", json=request)
        except httpx.HTTPError as error:
            raise TideError("the engine does not answer", why=reason(error)) from None
        if answer.status_code != 200:
            raise TideError(f"the engine refused a request ({answer.status_code})", why=answer.text.strip()[:300])
        return answer.json()
