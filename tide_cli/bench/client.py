"""Load: streamed chat completions with the time of every token, so many at a time or at given moments.

SGLang's own `bench_serving` was the first choice. Its OpenAI chat backend lacks what is needed here: with streaming it
gives no verify steps per request (only the server's mean since its start), it counts one inter-token gap for a chunk
however many tokens speculation put into it, and all requests of a run share one body, so that none can have an id of
its own, by which a measuring request is kept out of the spool.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from tide_cli.bench.requests import Request
from tide_cli.errors import reason

# The engine's plugin leaves requests out of the capture whose id starts so.
NOT_CAPTURED = "tide-measure-"
_ERROR_TEXT = 300  # characters of an engine's refusal that are kept
_MOST = 10**7  # tokens or steps of an answer: no engine means more, and each token takes memory here

_T = TypeVar("_T")


@dataclass(frozen=True)
class Answer:
    """What came back for a request. Moments are seconds of time.monotonic().

    sent: when the request left; first, last: when its first and its last token arrived, None where none did.
    token_times: the arrival of every completion token; tokens that came together have the same.
    verify_steps: of the target, None without speculation; drafts: proposed to it, at the most the engine may propose;
    accepted_steps: how many verify steps accepted 0, 1, … drafts.
    error: None, or why there is no whole answer; timed_out: whether that was the time limit.
    """

    request: Request
    sent: float
    first: float | None
    last: float | None
    token_times: tuple[float, ...]
    prompt_tokens: int
    completion_tokens: int
    verify_steps: int | None
    text: str
    error: str | None
    drafts: int | None = None
    accepted_steps: tuple[int, ...] = ()
    timed_out: bool = False


def run(sending: Coroutine[Any, Any, _T]) -> _T:
    """What comes of it, on an event loop that lets Ctrl-C through.

    uvloop, which others in the process may have set up, swallows a KeyboardInterrupt that comes while it reads.
    """
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(sending)


async def send_all(
    url: str,
    model: str,
    requests: Sequence[Request],
    *,
    concurrency: int | None = None,
    arrivals: Sequence[float] | None = None,
    on_answer: Callable[[Answer], None] | None = None,
    captured: bool = False,
    timeout: float = 600.0,
) -> list[Answer]:
    """Send every request and return the answers in the order of the requests; failures are answers with an error.

    url: the engine's, without /v1. concurrency: closed loop, the next request is sent when one is answered; arrivals:
    open loop, request i is sent arrivals[i] seconds after the start whatever has been answered. captured: False keeps
    the requests out of an appliance's spool. timeout: seconds of a whole request. Cancelling closes every connection,
    which ends the requests in the engine as well. Raises ValueError unless exactly one of the two loops is chosen.
    """
    if (concurrency is None) == (arrivals is None):
        raise ValueError("either concurrency or arrivals")
    answers: dict[int, Answer] = {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency or 64)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False) as http:

        async def send(place: int) -> None:
            answers[place] = answer = await _ask(http, model, requests[place], captured, timeout)
            if on_answer:
                on_answer(answer)

        async def worker(places: Iterator[int]) -> None:
            for place in places:
                await send(place)

        async with asyncio.TaskGroup() as group:
            if concurrency is not None:
                places = iter(range(len(requests)))
                for _ in range(min(concurrency, len(requests))):
                    group.create_task(worker(places))
            else:
                begun = time.monotonic()
                for place, (_, arrival) in enumerate(zip(requests, arrivals or (), strict=True)):
                    await asyncio.sleep(begun + arrival - time.monotonic())  # those to come take no memory yet
                    group.create_task(send(place))
    return [answers[place] for place in range(len(requests))]


class _Stream:
    """One answer as it comes in."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.sent = time.monotonic()
        self.times: list[float] = []
        self.text: list[str] = []
        self.prompt_tokens = self.completion_tokens = 0
        self.verify_steps: int | None = None
        self.drafts: int | None = None
        self.accepted_steps: tuple[int, ...] = ()
        self.finished: float | None = None

    def take(self, event: dict[str, Any], now: float) -> None:
        """One event of the stream, which arrived `now`. Raises _Refused for an error of the engine, and ValueError,
        TypeError or AttributeError for what is no event; what came before it stays."""
        if error := event.get("error"):
            words = error.get("message", error) if isinstance(error, dict) else error
            raise _Refused(str(words)[:_ERROR_TEXT])
        self._count(event.get("usage") or {}, (event.get("sglext") or {}).get("spec_tokens_details") or {})
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            text = "".join(delta.get(part) or "" for part in ("content", "reasoning_content"))
            if text:
                self.text.append(text)
                self._tokens_until(now)
            if choice.get("finish_reason") == "abort":
                raise _Refused("the engine has aborted the answer")
            if choice.get("finish_reason") is not None:
                self.finished = now
        if self.finished is not None:
            self._tokens_until(self.finished)  # tokens without a text, such as the end of the answer

    def _count(self, usage: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        self.prompt_tokens = _number(usage, "prompt_tokens", self.prompt_tokens)
        self.completion_tokens = _number(usage, "completion_tokens", self.completion_tokens)
        self.verify_steps = _number(spec, "spec_verify_ct", self.verify_steps)
        self.drafts = _number(spec, "spec_num_proposed_drafts", self.drafts)
        told = spec.get("spec_correct_drafts_histogram") or self.accepted_steps
        self.accepted_steps = tuple(_checked("spec_correct_drafts_histogram", steps) for steps in told)

    def _tokens_until(self, moment: float) -> None:
        self.times += [moment] * (self.completion_tokens - len(self.times))

    def answer(self, error: str | None = None, *, timed_out: bool = False) -> Answer:
        if error is None and self.finished is None:
            error = "the answer broke off"
        return Answer(
            self.request,
            self.sent,
            self.times[0] if self.times else None,
            self.times[-1] if self.times else None,
            tuple(self.times),
            self.prompt_tokens,
            self.completion_tokens,
            self.verify_steps,
            "".join(self.text),
            error,
            self.drafts,
            self.accepted_steps,
            timed_out,
        )


def _number(told: Mapping[str, Any], name: str, before: _T) -> int | _T:
    """`before` where it is not told."""
    return before if told.get(name) is None else _checked(name, told[name])


def _checked(name: str, count: Any) -> int:
    """ValueError where it counts nothing."""
    if not isinstance(count, int) or not 0 <= count <= _MOST:
        raise ValueError(f"{name} is not what it should be")
    return count


class _Refused(Exception):
    pass


async def _ask(http: httpx.AsyncClient, model: str, request: Request, captured: bool, timeout: float) -> Answer:
    body = {
        "model": model,
        "messages": list(request.messages),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,  # SGLang's own: verify steps and accepted drafts, before the end
    }
    if not captured:
        body["rid"] = NOT_CAPTURED + uuid.uuid4().hex
    stream = _Stream(request)
    try:
        async with asyncio.timeout(timeout), http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                refusal = (await response.aread()).decode(errors="replace").strip()
                raise _Refused(f"refused ({response.status_code}): {refusal[:_ERROR_TEXT]}")
            rest = b""
            async for piece in response.aiter_raw():
                now = time.monotonic()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data: {"):
                        stream.take(json.loads(line[6:]), now)
        return stream.answer()
    except _Refused as error:
        return stream.answer(str(error))
    except TimeoutError:
        return stream.answer(f"no whole answer within {timeout:g} s", timed_out=True)
    except httpx.HTTPError as error:
        return stream.answer(str(error) or type(error).__name__)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return stream.answer(f"an event of the answer cannot be read: {reason(error)}")
