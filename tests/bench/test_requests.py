from __future__ import annotations

import json
from pathlib import Path

import pytest

from tide_cli.bench.requests import Request, draw, poisson_arrivals, read_requests
from tide_cli.errors import UsageError


def write(path: Path, *contents: str, **more: str) -> None:
    lines = [json.dumps({"messages": [{"role": "user", "content": text}], **more}) for text in contents]
    path.write_text("\n".join(lines))


def texts(requests: list[Request]) -> list[str]:
    return [request.messages[-1]["content"] for request in requests]


def test_a_folder_is_one_domain_a_file(tmp_path: Path) -> None:
    write(tmp_path / "sql.jsonl", "s1", "s2", "s1")
    write(tmp_path / "code.jsonl", "c1")
    found = read_requests(tmp_path, max_tokens=9, temperature=0.5)
    assert [(one.domain, one.max_tokens, one.temperature) for one in found] == [
        ("code", 9, 0.5),
        ("sql", 9, 0.5),
        ("sql", 9, 0.5),
    ]
    assert texts(read_requests(tmp_path, max_tokens=9, domains=["sql"])) == ["s1", "s2"]
    with pytest.raises(UsageError, match="has no law"):
        read_requests(tmp_path, max_tokens=9, domains=["law"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no workload"):
        read_requests(tmp_path / "empty", max_tokens=9)


def test_earlier_turns_are_sent_along(tmp_path: Path) -> None:
    turns = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": turns, "domain": "chat"}))
    (request,) = read_requests(tmp_path / "a.jsonl", max_tokens=9)
    assert (list(request.messages), request.domain) == (turns, "chat")


def test_domains_of_a_file_are_those_of_its_lines(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "one", domain="chat")
    assert texts(read_requests(tmp_path / "a.jsonl", max_tokens=9, domains=["chat"])) == ["one"]
    with pytest.raises(UsageError, match="no prompt of the domain sql"):
        read_requests(tmp_path / "a.jsonl", max_tokens=9, domains=["sql"])
    with pytest.raises(UsageError, match="cannot read the workload"):
        read_requests(tmp_path / "absent.jsonl", max_tokens=9)


def test_a_draw_is_even_and_repeatable() -> None:
    requests = [Request(({"role": "user", "content": f"{d}{i}"},), 8, domain=d) for d in "ab" for i in range(20)]
    drawn = draw(requests, 10, seed=3)
    assert sorted(one.domain or "" for one in drawn) == ["a"] * 5 + ["b"] * 5
    assert drawn == draw(requests, 10, seed=3) != draw(requests, 10, seed=4)
    assert len(set(texts(drawn))) == 10
    assert sorted(texts(draw(requests, 99, seed=0))) == sorted(texts(requests))


def test_arrivals_have_the_rate_that_was_asked_for() -> None:
    arrivals = poisson_arrivals(4000, 2.0, seed=1)
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    assert 4000 / arrivals[-1] == pytest.approx(2.0, rel=0.1)
