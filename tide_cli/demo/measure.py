"""Old draft against new one: the same prompts, the same load, an empty prefix cache, in turns, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tide_cli.demo.chat import Answer, ChatClient, acceptance_length
from tide_cli.errors import TideError
from tide_cli.workload.prompt import Prompt


@dataclass(frozen=True)
class Measurement:
    """acceptance_length: completion tokens / verify steps; output_tok_s: completion tokens / wall seconds.

    by_domain: acceptance length of each domain of the prompts.
    """

    acceptance_length: float
    output_tok_s: float
    by_domain: dict[str, float]


def compare(
    chat: ChatClient,
    use_draft: Callable[[int], None],
    flush_cache: Callable[[], None],
    versions: Sequence[int],
    prompts: Sequence[Prompt],
    *,
    concurrency: int,
    max_tokens: int,
    rounds: int,
    say: Callable[[str], None],
    progress: Callable[[str], None],
) -> dict[int, Measurement]:
    """Measure each version `rounds` times, in alternating order, and take the medians. The last one stays in use.

    use_draft: puts a version into the engine and returns when it is there; flush_cache: empties its prefix cache. say:
    gets each pass's result; progress: how far a pass has come. Raises TideError.
    """
    passes: dict[int, list[Measurement]] = {version: [] for version in versions}
    for number in range(rounds):
        # the order alternates so that a drift of the machine's speed hits all alike; the last round is in order
        in_order = (rounds - 1 - number) % 2 == 0
        for version in versions if in_order else reversed(versions):
            name = f"round {number + 1} of {rounds}, v{version:04d}"
            use_draft(version)
            # what is cached holds the draft states of the version before, and would spare the prefill
            flush_cache()
            measured = measure(chat, prompts, concurrency, max_tokens, partial(_tell, progress, name, len(prompts)))
            passes[version].append(measured)
            say(f"{name}: acceptance length {measured.acceptance_length:.2f}, {measured.output_tok_s:.1f} tok/s")
    return {version: median(measured) for version, measured in passes.items()}


def _tell(progress: Callable[[str], None], name: str, prompts: int, answered: int) -> None:
    progress(f"{name}: {answered} of {prompts}")


def measure(
    chat: ChatClient, prompts: Sequence[Prompt], concurrency: int, max_tokens: int, answered: Callable[[int], None]
) -> Measurement:
    """One pass over the prompts, `concurrency` at a time, not captured; answered(n) after each. Raises TideError."""
    answers: list[Answer] = []
    started = time.monotonic()
    pool = ThreadPoolExecutor(concurrency)
    try:
        for answer in pool.map(lambda prompt: chat.ask(prompt, max_tokens, captured=False), prompts):
            answers.append(answer)
            answered(len(answers))
    finally:
        # an interruption must not wait for the answers: the engine is ended then, which ends them
        pool.shutdown(wait=False, cancel_futures=True)
    return _measurement(answers, time.monotonic() - started)


def _measurement(answers: Sequence[Answer], seconds: float) -> Measurement:
    length = acceptance_length(answers)
    if length is None:
        raise TideError(
            "nothing can be measured", why="no answer took a verify step", remedy="use prompts with longer answers"
        )
    lengths = {
        domain: acceptance_length(answer for answer in answers if answer.domain == domain)
        for domain in dict.fromkeys(answer.domain for answer in answers)
    }
    rate = sum(answer.tokens for answer in answers) / seconds
    return Measurement(length, rate, {name: value for name, value in lengths.items() if value is not None})


def median(passes: Sequence[Measurement]) -> Measurement:
    """Of each figure by itself."""
    return Measurement(
        statistics.median(one.acceptance_length for one in passes),
        statistics.median(one.output_tok_s for one in passes),
        {
            domain: statistics.median(one.by_domain[domain] for one in passes if domain in one.by_domain)
            for domain in dict.fromkeys(domain for one in passes for domain in one.by_domain)
        },
    )
