"""Chat client, traffic and comparison against a server that answers as the engine does."""

from __future__ import annotations

import itertools
import threading

import pytest
from scripted_engine import ScriptedEngine

from tide_cli.demo.chat import Answer, ChatClient, acceptance_length
from tide_cli.demo.measure import Measurement, compare, measure, median
from tide_cli.demo.traffic import Traffic
from tide_cli.engine.client import EngineClient
from tide_cli.errors import TideError
from tide_cli.workload.generator import generate
from tide_cli.workload.prompt import Prompt

PROMPTS = tuple(itertools.islice(generate(0), 6))


def test_acceptance_length_is_the_ratio_of_the_sums() -> None:
    answers = [Answer("sql", 90, 30, 1.0), Answer("sql", 10, 10, 1.0), Answer("python", 1, 0, 1.0)]
    assert acceptance_length(answers) == 101 / 40
    assert acceptance_length(answers[2:]) is None
    assert acceptance_length([]) is None


def test_a_request_is_greedy_and_captured_only_where_wanted(engine: ScriptedEngine, chat: ChatClient) -> None:
    engine.length = 2.0
    answer = chat.ask(PROMPTS[0], 96, captured=True)
    assert (answer.domain, answer.tokens, answer.verify_steps) == ("sql", 60, 30)
    chat.ask(PROMPTS[0], 96, captured=False)
    chat.ask(PROMPTS[0], 96, captured=False)
    sent, *measured = engine.chats()
    assert sent["messages"] == PROMPTS[0].openai()
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("tiny", 96, 0)
    assert "rid" not in sent
    assert all(request["rid"].startswith("tide-") for request in measured)  # as the plugin's capture knows its own
    assert measured[0]["rid"] != measured[1]["rid"]


def test_the_engines_reason_is_told(engine: ScriptedEngine, chat: ChatClient) -> None:
    engine.failure = (400, "the prompt is too long")
    with pytest.raises(TideError) as caught:
        chat.ask(PROMPTS[0], 96, captured=True)
    assert caught.value.lines() == ["the engine refused a request (400): the prompt is too long"]


def test_an_absent_engine_is_an_error_for_people(engine: ScriptedEngine) -> None:
    client = ChatClient("http://127.0.0.1:9", "tiny", connections=1)
    with pytest.raises(TideError, match="does not answer"):
        client.ask(PROMPTS[0], 96, captured=True)
    client.close()
    with pytest.raises(TideError, match="does not empty its prefix cache"):
        EngineClient("127.0.0.1", 9).flush_cache()


def test_a_pass_sends_every_prompt_once_and_so_many_at_a_time(engine: ScriptedEngine, chat: ChatClient) -> None:
    engine.gate = threading.Barrier(3)  # passes only three requests at a time: fewer would break it
    engine.length = 1.5
    counted: list[int] = []
    measured = measure(chat, PROMPTS, 3, 96, counted.append)
    assert counted == [1, 2, 3, 4, 5, 6]
    assert measured.acceptance_length == 1.5
    assert measured.by_domain == {"sql": 1.5, "python": 1.5, "support": 1.5}
    assert measured.output_tok_s > 0
    assert sorted(str(request["messages"]) for request in engine.chats()) == sorted(str(p.openai()) for p in PROMPTS)


def test_answers_of_one_token_cannot_be_measured(engine: ScriptedEngine, chat: ChatClient) -> None:
    engine.tokens = 1
    with pytest.raises(TideError, match="nothing can be measured"):
        measure(chat, PROMPTS, 2, 1, lambda n: None)


def test_drafts_are_compared_in_turns_each_on_an_empty_cache(engine: ScriptedEngine, chat: ChatClient) -> None:
    lengths = {0: 1.0, 3: 1.5}
    used: list[int] = []

    def use_draft(version: int) -> None:
        used.append(version)
        engine.journal.append(("use", version))
        engine.length = lengths[version]

    said: list[str] = []
    steps: list[str] = []
    result = compare(
        chat,
        use_draft,
        EngineClient(*engine.server_address).flush_cache,
        [0, 3],
        PROMPTS,
        concurrency=2,
        max_tokens=96,
        rounds=3,
        say=said.append,
        progress=steps.append,
    )
    assert {version: measured.acceptance_length for version, measured in result.items()} == lengths
    assert used == [0, 3, 3, 0, 0, 3]
    assert [kind for kind, _ in engine.journal] == ["use", "/flush_cache", *["chat"] * len(PROMPTS)] * 6
    assert steps[-1] == "round 3 of 3, v0003: 6 of 6"
    assert len(said) == 6
    assert said[0].startswith("round 1 of 3, v0000: acceptance length 1.00, ")


def test_one_draft_alone_is_measured_too(engine: ScriptedEngine, chat: ChatClient) -> None:
    said: list[str] = []
    result = compare(
        chat,
        lambda version: None,
        lambda: None,
        [2],
        PROMPTS,
        concurrency=2,
        max_tokens=96,
        rounds=2,
        say=said.append,
        progress=said.append,
    )
    assert list(result) == [2]


def test_the_median_is_taken_of_each_figure_by_itself() -> None:
    passes = [Measurement(1.0, 30.0, {"sql": 1.0}), Measurement(1.2, 10.0, {"sql": 2.0}), Measurement(9.0, 20.0, {})]
    assert median(passes) == Measurement(1.2, 20.0, {"sql": 1.5})


def test_traffic_runs_until_it_is_stopped_and_sends_each_prompt_once(engine: ScriptedEngine, chat: ChatClient) -> None:
    engine.length = 1.2
    traffic = Traffic(chat, generate(5), 3, 64)
    assert traffic.figures().acceptance_length is None
    traffic.start()
    for _ in range(30):
        assert engine.answered.acquire(timeout=30)
    traffic.drain()
    figures, sent = traffic.figures(), [str(request["messages"]) for request in engine.chats()]
    assert figures.answered == len(sent) >= 30
    assert figures.failed == 0
    assert figures.acceptance_length == 1.2
    assert figures.output_tok_s > 0
    assert sorted(sent) == sorted(str(prompt.openai()) for prompt in itertools.islice(generate(5), len(sent)))
    assert not any("rid" in request for request in engine.chats())


def test_traffic_outlives_failed_requests(engine: ScriptedEngine, chat: ChatClient) -> None:
    engine.failure = (503, "starting")
    traffic = Traffic(chat, generate(5), 1, 64)
    traffic.start()
    assert engine.answered.acquire(timeout=30)
    engine.failure = None
    while not traffic.figures().answered:
        assert engine.answered.acquire(timeout=30)
    traffic.drain()
    figures = traffic.figures()
    assert figures.failed >= 1
    assert figures.last_failure == "the engine refused a request (503): starting"


def test_traffic_that_was_never_started_can_be_ended(chat: ChatClient) -> None:
    traffic = Traffic(chat, iter([Prompt("x", (("user", "y"),))]), 2, 64)
    traffic.drain()
    assert traffic.figures().answered == 0
