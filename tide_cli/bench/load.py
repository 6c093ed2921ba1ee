"""Requests for measurements that need no particular ones: the user's own, else generated."""

from __future__ import annotations

import itertools
from pathlib import Path

from tide_cli.bench.requests import Request, draw, read_requests
from tide_cli.errors import UsageError
from tide_cli.printable import many
from tide_cli.workload.generator import generate


def load_requests(workload: Path | None, count: int, max_tokens: int, seed: int) -> list[Request]:
    """`count` distinct ones. Raises UsageError where the workload has fewer."""
    if workload is None:
        prompts = itertools.islice(generate(seed), count)
        return [Request(tuple(prompt.openai()), max_tokens, domain=prompt.domain) for prompt in prompts]
    found = draw(read_requests(workload, max_tokens=max_tokens), count, seed)
    if len(found) < count:
        raise UsageError(f"{workload} has {many(len(found), 'different prompt')}, {count} are asked for")
    return found
