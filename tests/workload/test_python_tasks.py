"""The results in the examples are what the described function returns."""

from __future__ import annotations

import ast
import itertools
import random
import re

from tide_cli.workload.python_tasks import python_task


def examples(pattern: str, count: int):
    """(the pattern's groups, argument, result) of `count` prompts that describe exactly this."""
    rng = random.Random(11)
    texts = (python_task(rng) for _ in itertools.count())
    found = ((re.search(pattern, text), text.partition("Example: ")[2]) for text in texts)
    for match, example in itertools.islice(((m, e) for m, e in found if m), count):
        comparison = ast.parse(example, mode="eval").body
        yield match.groups(), ast.literal_eval(comparison.left.args[0]), ast.literal_eval(comparison.comparators[0])


def test_numbers() -> None:
    for (n,), numbers, result in examples(r"keeps those divisible by (\d+), squares them, and returns their sum", 10):
        assert result == sum(x * x for x in numbers if x % int(n) == 0)


def test_words() -> None:
    pattern = r"keeps the words of at most (\d+) letters, reverses each of them, and returns them joined by '(.)'"
    for (n, mark), text, result in examples(pattern, 10):
        assert result == mark.join(word[::-1] for word in text.split() if len(word) <= int(n))
