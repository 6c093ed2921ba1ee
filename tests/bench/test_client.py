"""The client against a server of known behaviour: what is counted, in which order, how failures look. No timing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from stub_engine import StubEngine

from tide_cli.bench.client import NOT_CAPTURED, Answer, send_all
from tide_cli.bench.figures import acceptance_by_position, acceptance_length, acceptance_rate
from tide_cli.bench.requests import Request


@pytest.fixture
def engine() -> Iterator[StubEngine]:
    made = StubEngine()
    yield made
    made.close()


def requests(count: int) -> list[Request]:
    return [Request(({"role": "user", "content": str(i)},), max_tokens=8) for i in range(count)]


def send(engine: StubEngine, count: int, **options: Any) -> list[Answer]:
    if "arrivals" not in options:
        options = {"concurrency": 1} | options
    return asyncio.run(send_all(engine.url, "m", requests(count), **options))


def test_every_token_has_its_moment(engine: StubEngine) -> None:
    (answer,) = send(engine, 1)
    assert answer.error is None
    assert answer.text == "xxxxx"
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 6)
    assert len(answer.token_times) == 6
    assert answer.token_times[1] == answer.token_times[2]
    assert answer.token_times[3] == answer.token_times[4]
    assert all(before <= after for before, after in pairwise((answer.sent, *answer.token_times)))
    assert (answer.first, answer.last) == (answer.token_times[0], answer.token_times[-1])


class Clock:
    """Stands in for the client's clock: it stands still until the engine moves it, and counts how often it is read."""

    def __init__(self) -> None:
        self.now, self.reads = 0.0, 0
        self.read = threading.Condition()

    def monotonic(self) -> float:
        with self.read:
            self.reads += 1
            self.read.notify_all()
            return self.now


def test_a_token_has_the_moment_at_which_its_bytes_came(engine: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client adds nothing of its own: the engine sends the next event only after the client has read the clock for
    this one. However slow the machine is, every moment is exactly known."""
    clock = Clock()
    monkeypatch.setattr("tide_cli.bench.client.time", clock)
    whole = engine.events

    def events(script: dict[str, Any]) -> Iterator[Any]:
        for place, event in enumerate(whole(script), start=1):
            with clock.read:
                before, clock.now = clock.reads, float(place)
            yield event
            with clock.read:
                assert clock.read.wait_for(lambda before=before: clock.reads > before, timeout=30)

    engine.events = events  # type: ignore[method-assign]
    (answer,) = send(engine, 1)
    assert answer.error is None
    assert answer.sent == 0  # before anything of the answer was there
    # of the events the first has a role, the next three have tokens, then comes the end, whose token is told afterwards
    assert answer.token_times == (2.0, 3.0, 3.0, 4.0, 4.0, 5.0)


def test_speculation_is_counted_per_answer(engine: StubEngine) -> None:
    answers = send(engine, 2)
    assert [answer.verify_steps for answer in answers] == [3, 3]
    assert acceptance_length(answers) == 2.0
    assert acceptance_rate(answers) == 4 / 9
    assert acceptance_by_position(answers) == pytest.approx([2 / 3, 2 / 3])
    engine.script = lambda request: {"chunks": [1, 1]}
    (answer,) = send(engine, 1)
    assert answer.verify_steps is None
    assert acceptance_length([answer]) is None


def test_the_request_is_the_one_that_was_asked_for(engine: StubEngine) -> None:
    request = Request(({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}), 5, 0.7)
    asyncio.run(send_all(engine.url, "m", [request], concurrency=1))
    (sent,) = engine.chats
    assert (sent["messages"], sent["max_tokens"], sent["temperature"]) == (list(request.messages), 5, 0.7)
    assert sent["rid"].startswith(NOT_CAPTURED)
    send(engine, 1, captured=True)
    assert "rid" not in engine.chats[1]


def test_answers_come_in_the_order_of_the_requests_and_no_more_run_at_once_than_asked(engine: StubEngine) -> None:
    together = threading.Barrier(3)

    def script(request: dict[str, Any]) -> dict[str, Any]:
        together.wait(timeout=30)  # three at a time must be under way, or nothing ends
        return {"chunks": [1]}

    engine.script = script
    seen: list[Answer] = []
    answers = send(engine, 9, concurrency=3, on_answer=seen.append)
    assert engine.most_at_once == 3
    assert [answer.request.messages[0]["content"] for answer in answers] == [str(i) for i in range(9)]
    assert sorted(map(id, seen)) == sorted(map(id, answers))


def test_an_open_loop_waits_for_no_answer(engine: StubEngine) -> None:
    together = threading.Barrier(5)

    def script(request: dict[str, Any]) -> dict[str, Any]:
        together.wait(timeout=30)
        return {"chunks": [1]}

    engine.script = script
    answers = send(engine, 5, arrivals=[0.0, 0.01, 0.02, 0.03, 0.04])
    assert [answer.error for answer in answers] == [None] * 5
    assert [answer.sent for answer in answers] == sorted(answer.sent for answer in answers)


@pytest.mark.parametrize(
    ("script", "words", "tokens"),
    [
        ({"chunks": [1, 2], "error": "out of memory"}, "out of memory", 3),
        ({"chunks": [1], "broken": True}, "peer closed connection", 1),
        ({"chunks": [], "broken": True}, "peer closed connection", 0),
    ],
)
def test_what_fails_is_an_answer_with_a_reason(
    script: dict[str, Any], words: str, tokens: int, engine: StubEngine
) -> None:
    engine.script = lambda request: script
    (answer,) = send(engine, 1)
    assert answer.error is not None
    assert words in answer.error
    assert not answer.timed_out
    assert len(answer.token_times) == tokens


END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
TEXT = {"choices": [{"delta": {"content": "x"}, "finish_reason": None}], "usage": {"completion_tokens": 1}}
UNREAD = "an event of the answer cannot be read: "


def details(**spec: Any) -> dict[str, Any]:
    return {"choices": [], "sglext": {"spec_tokens_details": spec}}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"usage": [1]}, UNREAD + "its contents are not what they should be"),
        ({"usage": {"completion_tokens": "x"}}, UNREAD + "completion_tokens is not what it should be"),
        ({"usage": {"completion_tokens": -3}}, UNREAD + "completion_tokens is not what it should be"),
        ({"usage": {"completion_tokens": 10**50}}, UNREAD + "completion_tokens is not what it should be"),
        ({"usage": {"completion_tokens": float("nan")}}, UNREAD + "completion_tokens is not what it should be"),
        ({"usage": {"completion_tokens": float("inf")}}, UNREAD + "completion_tokens is not what it should be"),
        (details(spec_verify_ct="x"), UNREAD + "spec_verify_ct is not what it should be"),
        (details(spec_verify_ct=1, spec_correct_drafts_histogram=[None]), "spec_correct_drafts_histogram is not"),
        (details(spec_verify_ct=1, spec_correct_drafts_histogram=3), UNREAD),
        ({"choices": None}, UNREAD),
        ({"choices": [{"delta": {"content": ["x"], "reasoning_content": ["y"]}}]}, UNREAD),
        ('{"a":' + "[" * 10**5 + "]" * 10**5 + "}", UNREAD + "it is nested too deeply"),
        ({"error": "overloaded"}, "overloaded"),
        ({"choices": [{"delta": {}, "finish_reason": "abort"}]}, "the engine has aborted the answer"),
    ],
)
def test_a_malformed_event_fails_one_answer(event: Any, words: str, engine: StubEngine) -> None:
    """What came before it stays, and the other requests go on."""
    bad: list[list[Any]] = [[TEXT, event, END], [TEXT, END]]
    engine.events = lambda script: bad.pop(0)  # type: ignore[method-assign, assignment]
    first, second = send(engine, 2)
    assert words in (first.error or "")
    assert (first.text, first.completion_tokens, len(first.token_times)) == ("x", 1, 1)
    assert (second.error, second.completion_tokens) == (None, 1)


def test_counts_that_are_not_told_are_unknown(engine: StubEngine) -> None:
    nothing = details(spec_verify_ct=None, spec_num_proposed_drafts=None)
    engine.events = lambda script: [  # type: ignore[method-assign, assignment]
        {"error": None}, TEXT, {"usage": {"completion_tokens": None}}, details(other=1), nothing, END,
    ]  # fmt: skip
    (answer,) = send(engine, 1)
    assert (answer.error, answer.completion_tokens) == (None, 1)
    assert (answer.verify_steps, answer.drafts, answer.accepted_steps) == (None, None, ())


def test_a_refusal_is_told(engine: StubEngine) -> None:
    engine.refusal = (400, "the prompt is too long")
    assert [answer.error for answer in send(engine, 2)] == ["refused (400): the prompt is too long"] * 2


def test_nobody_there() -> None:
    gone = StubEngine()
    gone.close()
    (answer,) = send(gone, 1)
    assert answer.error
    assert answer.first is None


def test_a_time_limit_ends_a_request_and_not_the_others(engine: StubEngine) -> None:
    engine.script = lambda request: {"chunks": [1], "hang": request["messages"][0]["content"] == "0"}
    answers = send(engine, 3, timeout=0.5)
    assert [answer.timed_out for answer in answers] == [True, False, False]
    assert answers[0].error == "no whole answer within 0.5 s"


def test_one_loop_must_be_chosen(engine: StubEngine) -> None:
    for options in ({"concurrency": None}, {"concurrency": 1, "arrivals": [0.0]}):
        with pytest.raises(ValueError, match="either"):
            asyncio.run(send_all(engine.url, "m", requests(1), **options))
