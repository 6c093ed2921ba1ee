"""The generated workload: endless, distinct, the same for the same seed, and right in what it claims."""

from __future__ import annotations

import ast
import itertools
import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.workload.generator import DOMAINS, generate, generated_workload


def first(seed: int, count: int):
    return list(itertools.islice(generate(seed), count))


@given(st.integers(min_value=0, max_value=2**32))
def test_a_seed_fixes_the_prompts(seed: int) -> None:
    assert first(seed, 12) == first(seed, 12)
    assert first(seed, 12) != first(seed + 1, 12)


def test_prompts_are_distinct_and_the_domains_come_in_turn() -> None:
    prompts = first(7, 20_000)
    assert len({prompt.messages for prompt in prompts}) == len(prompts)
    assert [prompt.domain for prompt in prompts] == list(itertools.islice(itertools.cycle(DOMAINS), len(prompts)))


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=1, max_value=20))
def test_measured_prompts_are_never_sent_as_traffic(seed: int, count: int) -> None:
    workload = generated_workload(seed, count)
    assert len(workload.measured) == count
    assert not set(workload.measured) & set(itertools.islice(workload.traffic, 200))


def test_a_prompt_is_one_openai_message_of_the_user() -> None:
    for prompt in first(3, 30):
        assert prompt.openai() == [{"role": "user", "content": prompt.messages[0][1]}]
        assert 40 < len(prompt.messages[0][1]) < 800


def test_the_tables_of_sql_prompts_are_valid_sql() -> None:
    for prompt in first(5, 600)[::3]:
        database = sqlite3.connect(":memory:")
        database.executescript("\n".join(re.findall(r"^CREATE TABLE .*;$", prompt.messages[0][1], re.MULTILINE)))
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        question = prompt.messages[0][1].partition("Question: ")[2]
        assert tables
        assert any(table in question for table in tables), question
        database.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_examples_of_python_prompts_are_calls_with_literal_results(seed: int) -> None:
    for prompt in first(seed, 600)[1::3]:
        text = prompt.messages[0][1]
        name = re.match(r"Write a Python function (\w+) that ", text)[1]
        comparison = ast.parse(text.partition("Example: ")[2], mode="eval").body
        assert isinstance(comparison, ast.Compare)
        assert comparison.left.func.id == name
        ast.literal_eval(comparison.left.args[0])
        ast.literal_eval(comparison.comparators[0])
