"""What is sent: requests from a user's own files, the same ones in the same order for everybody who is measured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.errors import UsageError
from tide_cli.workload.jsonl import read_prompts
from tide_cli.workload.prompt import Prompt

SLOWEST = 0.001  # requests a second: one in a quarter of an hour


@dataclass(frozen=True)
class Request:
    """One chat completion. messages: OpenAI's, earlier turns included; max_tokens: of the answer."""

    messages: tuple[dict[str, Any], ...]
    max_tokens: int
    temperature: float = 0.0
    domain: str | None = None


def read_requests(
    path: Path, *, max_tokens: int, temperature: float = 0.0, domains: Sequence[str] | None = None
) -> list[Request]:
    """The distinct prompts of a JSONL file, or of every DOMAIN.jsonl of a folder, in the order in which they stand.

    domains: only these, in this order; those of a folder are its files, those of a file its lines' `domain`.
    Raises UsageError.
    """
    if path.is_dir():
        names = domains or [file.stem for file in domain_files(path)]
        if not names:
            raise UsageError(f"{path} holds no workload", why="there is no DOMAIN.jsonl in it")
        found = [(name, prompt) for name in names for prompt in read_prompts(_domain_file(path, name))]
    else:
        found = [(prompt.domain, prompt) for prompt in read_prompts(path)]
        if domains:
            absent = sorted(set(domains) - {name for name, _ in found})
            if absent:
                raise UsageError(
                    f"{path} has no prompt of the domain {', '.join(absent)}",
                    why="in a file it stands in each line, as `domain`",
                    remedy="leave out --domains, or name a folder with DOMAIN.jsonl",
                )
            found = [(name, prompt) for domain in domains for name, prompt in found if name == domain]
    return [_request(name, prompt, max_tokens, temperature) for name, prompt in dict.fromkeys(found)]


def domain_files(folder: Path) -> list[Path]:
    """Every DOMAIN.jsonl of a folder, in the order of their names."""
    return sorted(file for file in folder.glob("*.jsonl") if file.is_file())


def draw(requests: Sequence[Request], count: int, seed: int) -> list[Request]:
    """`count` of them, evenly over the domains, mixed; drawn with `seed`. All of them where there are fewer."""
    rng = random.Random(seed)
    by_domain: dict[str | None, list[Request]] = {}
    for request in requests:
        by_domain.setdefault(request.domain, []).append(request)
    for group in by_domain.values():
        rng.shuffle(group)
    drawn: list[Request] = []
    for place in range(max(map(len, by_domain.values()), default=0)):
        drawn += [group[place] for group in by_domain.values() if place < len(group)]
    drawn = drawn[:count]
    rng.shuffle(drawn)
    return drawn


def poisson_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds at which `count` requests arrive, `rate` a second on average, with exponential gaps; the first at 0."""
    rng = random.Random(seed)
    arrivals, now = [], 0.0
    for _ in range(count):
        arrivals.append(now)
        now += rng.expovariate(rate)
    return arrivals


def _domain_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.jsonl"
    if not file.is_file():
        known = ", ".join(other.stem for other in domain_files(folder))
        raise UsageError(f"{folder} has no {name}.jsonl", remedy=f"there are {known}" if known else None)
    return file


def _request(domain: str, prompt: Prompt, max_tokens: int, temperature: float) -> Request:
    return Request(tuple(prompt.openai()), max_tokens, temperature, domain)
