from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_engine import StubEngine

from tide_cli.bench.replay import Arrival, read_trace, schedule
from tide_cli.bench.requests import Request
from tide_cli.cli import main
from tide_cli.errors import NotRunningError, UsageError

REQUESTS = [Request(({"role": "user", "content": str(i)},), 100) for i in range(3)]
CHOICES: dict[str, Any] = {"count": None, "trace": None, "rate": None, "speed": 1.0, "seed": 0}


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def test_a_trace_begins_at_its_first_row(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "timestamp_s,input_tokens,output_tokens", "5.0,10,20", "5.0,1,2", "7.5,3,4")
    assert read_trace(file) == [Arrival(0.0, 20, 10), Arrival(0.0, 2, 1), Arrival(2.5, 4, 3)]
    bare = write(tmp_path / "bare.csv", "\ufefftimestamp_s,output_tokens", "5.0,20")
    assert read_trace(bare) == [Arrival(0.0, 20)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["a,b", "1,2"], "no column timestamp_s"),
        (["timestamp_s", "1"], "no column output_tokens"),
        (["timestamp_s,output_tokens"], "has no rows"),
        ([""], "no column"),
        (["timestamp_s,output_tokens", "1,2", "x,2"], "line 3"),
        (["timestamp_s,output_tokens", "nan,2"], "line 2"),
        (["timestamp_s,output_tokens", "1"], "line 2"),
        (["timestamp_s,output_tokens", "1,2", "2,-7"], "line 3"),
        (["timestamp_s,output_tokens", "2,2", "1,2"], "not in order of time"),
        (["timestamp_s,output_tokens,input_tokens", "1,2,x"], "line 2"),
    ],
)
def test_what_is_no_trace(lines: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        read_trace(write(tmp_path / "t.csv", *lines))
    with pytest.raises(UsageError, match="cannot read the trace"):
        read_trace(tmp_path / "absent.csv")


def test_a_trace_says_when_and_how_long() -> None:
    trace = [Arrival(0.0, 7), Arrival(1.0, 500), Arrival(4.0, 0), Arrival(6.0, 9)]
    sent, arrivals = schedule(REQUESTS, **CHOICES | {"trace": trace, "speed": 2.0})
    assert arrivals == [0.0, 0.5, 2.0, 3.0]
    assert [one.max_tokens for one in sent] == [7, 100, 1, 9]
    assert [one.messages[0]["content"] for one in sent] == ["0", "1", "2", "0"]
    sent, arrivals = schedule(REQUESTS, **CHOICES | {"trace": trace, "count": 2})
    assert (len(sent), arrivals) == (2, [0.0, 1.0])
    with pytest.raises(UsageError, match="the trace has 4 rows, 99 requests are asked for"):
        schedule(REQUESTS, **CHOICES | {"trace": trace, "count": 99})


def test_domains_are_mixed_evenly_with_the_seed() -> None:
    requests = [
        Request(({"role": "user", "content": f"{name} {i}"},), 9, domain=name) for name in "ab" for i in range(9)
    ]

    def texts(**choices: Any) -> list[str]:
        sent, _ = schedule(requests, **CHOICES | {"mixed": True} | choices)
        return [one.messages[0]["content"] for one in sent]

    assert [text[0] for text in sorted(texts(count=6))] == ["a"] * 3 + ["b"] * 3
    assert texts() == texts() != texts(seed=1)
    assert texts()[:9] != [one.messages[0]["content"] for one in requests[:9]]
    assert sorted(texts()) == sorted(texts(seed=1)) == sorted(one.messages[0]["content"] for one in requests)
    assert texts(count=40)[:18] == texts(count=40)[18:36] == texts()  # over and over


def test_a_rate_and_no_rate() -> None:
    assert schedule(REQUESTS, **CHOICES) == (REQUESTS, None)
    sent, slow = schedule(REQUESTS, **CHOICES | {"rate": 2.0, "count": 5})
    _, fast = schedule(REQUESTS, **CHOICES | {"rate": 2.0, "count": 5, "speed": 4.0})
    assert [one.messages[0]["content"] for one in sent] == ["0", "1", "2", "0", "1"]
    assert fast == pytest.approx([moment / 4 for moment in slow or ()])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubEngine]:
    """A running appliance whose engine is the stub."""
    made = StubEngine()
    monkeypatch.setattr(
        "tide_cli.cli.replay.ask",
        lambda *_: {"state": "READY", "address": f"{made.url}/v1", "target": "m"},
    )
    yield made
    made.close()


def replay(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(["replay", *map(str, arguments)])
    return int(end.value.code or 0)


def workload(folder: Path) -> Path:
    for domain in ("code", "sql"):
        lines = [json.dumps({"messages": [{"role": "user", "content": f"{domain} {i}"}]}) for i in range(3)]
        write(folder / f"{domain}.jsonl", *lines)
    return folder


def test_replayed_requests_are_traffic(engine: StubEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(workload(tmp_path), "--concurrency", 2, "--json") == 0
    assert sorted(chat["messages"][0]["content"] for chat in engine.chats) == sorted(
        f"{domain} {i}" for domain in ("code", "sql") for i in range(3)
    )
    assert all("rid" not in chat for chat in engine.chats)  # they are captured
    assert 1 <= engine.most_at_once <= 2
    found = json.loads(capsys.readouterr().out)["replay"]
    assert (found["requests"], found["errors"], found["output_tokens"]) == (6, 0, 36)
    assert found["acceptance_length"] == 2.0
    assert [one["domain"] for one in found["by_domain"]] == ["code", "sql"]


def test_a_trace_is_replayed(engine: StubEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "t.csv", "timestamp_s,output_tokens", "0,5", "1,6", "1,7")
    assert replay(workload(tmp_path), "--trace", trace, "--speed", 100, "--max-tokens", 6) == 0
    assert sorted(chat["max_tokens"] for chat in engine.chats) == [5, 6, 6]
    assert "output tok/s" in capsys.readouterr().out


def test_without_max_tokens_answers_are_as_long_as_the_rows_say(engine: StubEngine, tmp_path: Path) -> None:
    trace = write(tmp_path / "t.csv", "timestamp_s,output_tokens", "0,5", "1,1000", "1,0")
    assert replay(workload(tmp_path), "--trace", trace, "--speed", 100) == 0
    assert sorted(chat["max_tokens"] for chat in engine.chats) == [1, 5, 1000]
    engine.chats.clear()
    assert replay(workload(tmp_path)) == 0
    assert {chat["max_tokens"] for chat in engine.chats} == {256}


def test_a_folder_is_mixed_and_a_file_is_sent_as_it_stands(engine: StubEngine, tmp_path: Path) -> None:
    def sent(*arguments: object) -> list[str]:
        engine.chats.clear()
        assert replay(*arguments, "--concurrency", 1) == 0
        return [chat["messages"][0]["content"] for chat in engine.chats]

    folder = workload(tmp_path)
    assert sorted(text.split()[0] for text in sent(folder, "--requests", 4)) == ["code", "code", "sql", "sql"]
    assert sent(folder, "--seed", 0) == sent(folder) != sent(folder, "--seed", 1)
    assert sent(folder / "sql.jsonl", "--requests", 4) == ["sql 0", "sql 1", "sql 2", "sql 0"]


def test_a_failed_request_is_told(engine: StubEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine.refusal = (400, "too long")
    assert replay(workload(tmp_path), "--requests", 2) == 1
    assert "a request failed: refused (400): too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.jsonl"], "cannot read the workload absent.jsonl"),
        (["W", "--domains", "law"], "has no law.jsonl\n      there are code, sql"),
        (["W", "--domains", "sql,"], "is not a list of names"),
        (["W", "--trace", "absent.csv"], "cannot read the trace absent.csv"),
        (["W", "--rate", "1", "--concurrency", "2"], "--concurrency and --rate exclude each other"),
        (["W", "--rate", "-1"], "--rate -1.0 is not accepted"),
        (["W", "--rate", "1", "--speed", "nan"], "nan is not a number"),
        (["W", "--speed", "2"], "--speed has no effect"),
        (["W/sql.jsonl", "--seed", "0"], "--seed has no effect"),
        (["W", "--concurrency", "0"], "--concurrency"),
        (["W", "--concurrency", "5000"], "--concurrency"),
        (["W", "--rate", "1e-300"], "--rate 1e-300 is not accepted"),
        (["W", "--rate", "0.01", "--speed", "0.01"], "--rate 0.01 at --speed 0.01 is too slow"),
        (["W", "--requests", "300000000"], "it takes numbers up to 1000000"),
    ],
)
def test_bad_usage_sends_nothing(
    arguments: list[str], words: str, engine: StubEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "law.jsonl").mkdir()  # a folder is no domain
    folder = str(workload(tmp_path / "w"))
    assert replay(*[one.replace("W", folder, 1) if one[0] == "W" else one for one in arguments]) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert len(errors.splitlines()) <= 2
    assert engine.chats == []


def test_the_appliance_is_asked_before_requests_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tide_cli.bench.replay.schedule", pytest.fail)
    assert replay(workload(tmp_path), "--requests", 1_000_000, "--state-dir", tmp_path / "state") == 3


def test_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = replay(workload(tmp_path), "--state-dir", tmp_path / "state")
    assert code == int(NotRunningError.exit_code)
    assert "no appliance runs" in capsys.readouterr().err
