"""Workload files: what is read, what is refused and with which words."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.errors import UsageError
from tide_cli.workload.jsonl import file_workload, read_prompts


def record(text: str, **more: object) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}, ensure_ascii=False)


GOOD = record("Hello")


def test_messages_are_read_as_they_are(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Qu'est-ce que c'est ?\u2028Encore une ligne"},
        {"role": "assistant", "content": "Un test."},
        {"role": "user", "content": "Merci"},
    ]
    file = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"id": 3, "domain": "chat", "messages": messages}, ensure_ascii=False), "", GOOD]
    file.write_text("\r\n".join(lines) + "\n", encoding="utf-8")
    first, second = read_prompts(file)
    assert (first.domain, first.openai()) == ("chat", messages)
    assert second.openai() == [{"role": "user", "content": "Hello"}]


def test_texts_in_parts_are_joined_and_developers_are_heard(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    parts = [{"type": "text", "text": "Hello,"}, {"type": "text", "text": "world"}]
    messages = [{"role": "developer", "content": "Answer briefly."}, {"role": "user", "content": parts}]
    file.write_text(json.dumps({"messages": messages}))
    (prompt,) = read_prompts(file)
    assert prompt.openai() == [messages[0], {"role": "user", "content": "Hello, world"}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON: "),
        ("not json at all", "not JSON: "),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("{}", "`messages` is missing"),
        ('{"messages": []}', "`messages` is not a list of messages"),
        ('{"messages": "Hello"}', "`messages` is not a list of messages"),
        ('{"messages": ["Hello"]}', "message 1 is not an object"),
        ('{"messages": [{"content": "Hello"}]}', "message 1 has the role None"),
        ('{"messages": [{"role": ["user"], "content": "Hello"}]}', "message 1 has the role ['user']"),
        ('{"messages": [{"role": "robot", "content": "Hello"}]}', "message 1 has the role 'robot'"),
        ('{"messages": [{"role": "user"}]}', "message 1 has no text"),
        ('{"messages": [{"role": "user", "content": "  "}]}', "message 1 has no text"),
        ('{"messages": [{"role": "user", "content": []}]}', "message 1 has no text"),
        ('{"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}', "message 1 has no text"),
        (
            '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]}',
            "message 1 has a part 'image_url' in `content`, not a text",
        ),
        ('{"messages": [{"role": "user", "content": ["a"]}]}', "message 1 has a part 'a' in `content`, not a text"),
        ('{"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}', "message 1 has a part 'text'"),
        ('{"messages": [{"role": "tool", "content": "7"}]}', "message 1 is of a chat with tools"),
        (record("Hello", tools=[{"type": "function"}]), "the line is of a chat with tools"),
        (record("Hello", functions=[{"name": "f"}]), "the line is of a chat with tools"),
        (
            '{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "a"}]}]}',
            "message 1 is of a chat with tools",
        ),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
            "the last message is from the assistant",
        ),
        (record("Hello", domain=7), "`domain` is not a text"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    with pytest.raises(UsageError) as caught:
        read_prompts(file)
    assert caught.value.what == f"{file}, line 3"
    assert caught.value.why.startswith(reason)
    assert len(caught.value.lines()) == 2


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="is empty"):
        read_prompts(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent.jsonl", "No such file"), (tmp_path, "it is a folder")):
        with pytest.raises(UsageError) as caught:
            read_prompts(path)
        assert reason in caught.value.why
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\x80\x81")
    with pytest.raises(UsageError) as caught:
        read_prompts(binary)
    assert caught.value.why == "byte 0 is not UTF-8"
    os.mkfifo(pipe := tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError) as caught:
        read_prompts(pipe)
    assert caught.value.why == "it is a pipe, and nothing came out of it"


@given(st.text())
def test_any_line_is_either_read_or_refused_as_usage(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    file = tmp_path_factory.mktemp("any") / "prompts.jsonl"
    file.write_bytes(line.encode("utf-8", "replace"))
    with pytest.raises(UsageError):
        read_prompts(file)


def test_too_few_prompts_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join([record(str(i)) for i in range(7)] + [record("1")] * 5))
    with pytest.raises(UsageError, match="holds 7 different prompts"):
        file_workload(file, seed=0, measured=12)


@given(st.integers(min_value=8, max_value=90), st.integers(min_value=1, max_value=20))
def test_a_quarter_at_most_is_measured_and_the_rest_is_sent_over_and_over(
    tmp_path_factory: pytest.TempPathFactory, count: int, measured: int
) -> None:
    file = tmp_path_factory.mktemp("file") / "prompts.jsonl"
    file.write_text("\n".join(record(f"prompt {i}") for i in range(count)))
    workload = file_workload(file, seed=1, measured=measured)
    kept, rest = set(workload.measured), count - len(workload.measured)
    sent = list(itertools.islice(workload.traffic, 2 * rest))
    assert len(kept) == len(workload.measured) == min(measured, count // 4)
    assert sent[:rest] == sent[rest:]
    assert len(set(sent)) == rest
    assert not kept & set(sent)
