"""The generated workload: three plainly different domains in turn, without an end and without a repetition."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from tide_cli.workload.prompt import Prompt, Workload
from tide_cli.workload.python_tasks import python_task
from tide_cli.workload.sql_questions import sql_question
from tide_cli.workload.support_messages import support_message

DOMAINS: dict[str, Callable[[random.Random], str]] = {
    "sql": sql_question,
    "python": python_task,
    "support": support_message,
}


def generate(seed: int) -> Iterator[Prompt]:
    """Endless distinct prompts, the domains in turn; the same seed gives the same ones."""
    rng = random.Random(seed)
    seen: set[str] = set()
    for domain in itertools.cycle(DOMAINS):
        text = DOMAINS[domain](rng)
        while text in seen:
            text = DOMAINS[domain](rng)
        seen.add(text)
        yield Prompt(domain, (("user", text),))


def generated_workload(seed: int, measured: int) -> Workload:
    """The first `measured` prompts are kept for measuring, all others are traffic."""
    prompts = generate(seed)
    return Workload(tuple(itertools.islice(prompts, measured)), prompts)
