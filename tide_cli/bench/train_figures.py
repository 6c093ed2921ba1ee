"""What `tide bench train` says, from what was timed, stored and walked. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tide_cli.adaptation.gate import Walk, acceptance_length
from tide_cli.bench.figures import middle_95, resampled
from tide_cli.bench.rounds import Spread, ratios
from tide_cli.errors import TideError
from tide_cli.supervisor.logs import last_lines

FIRST, TIDE, SPECFORGE = "first", "tide", "specforge"  # drafts; the latter two are the contestants as well

_STEP = re.compile(r"^step \d+: (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True)
class Timed:
    """One pass over all samples. tokens: without padding; steps: of the optimiser."""

    tokens: int
    seconds: float
    steps: int

    @property
    def tokens_s(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Stored:
    """Samples as one contestant reads them. tokens: rows; size_bytes: on the disk; seconds: for writing them."""

    tokens: int
    size_bytes: int
    seconds: float


def train_figures(rounds: Sequence[Mapping[str, Timed]]) -> dict[str, Any]:
    """Medians over the rounds, ratio the median of the rounds' ratios, under "spread" the quartiles around each:
    {tokens_s, specforge_tokens_s, ratio, rounds, tokens, steps, specforge_steps, spread}."""
    tide = [results[TIDE] for results in rounds]
    specforge = [results[SPECFORGE] for results in rounds]
    spreads = {
        "tokens_s": Spread.of([timed.tokens_s for timed in tide]),
        "specforge_tokens_s": Spread.of([timed.tokens_s for timed in specforge]),
        "ratio": ratios([timed.tokens_s for timed in tide], [timed.tokens_s for timed in specforge]),
    }
    return {name: spread.median for name, spread in spreads.items()} | {
        "rounds": len(rounds),
        "tokens": tide[0].tokens,
        "steps": tide[0].steps,
        "specforge_steps": specforge[0].steps,
        "spread": {name: [spread.low, spread.high] for name, spread in spreads.items()},
    }


def storage_figures(stored: Mapping[str, Stored], rounds: Sequence[Mapping[str, Timed]]) -> dict[str, Any]:
    """{stored_tokens, stored_bytes, bytes_per_token, seconds}, the latter three by contestant.

    seconds: {store: for writing the samples once, pass: for training on all of them, median over the rounds}.
    """
    return {
        "stored_tokens": stored[TIDE].tokens,
        "stored_bytes": {name: one.size_bytes for name, one in stored.items()},
        "bytes_per_token": {name: one.size_bytes / one.tokens for name, one in stored.items()},
        "seconds": {
            name: {"store": one.seconds, "pass": Spread.of([results[name].seconds for results in rounds]).median}
            for name, one in stored.items()
        },
    }


def accuracy_figures(walks: Mapping[str, Sequence[Walk]]) -> dict[str, Any]:
    """{acceptance_length, acceptance_intervals: by draft, held_out_samples, held_out_tokens, length_difference,
    length_interval}.

    walks: draft to its walks of the same held-out samples. The difference is TIDE's less SpecForge's. Intervals, of
    95 %, are a bootstrap over samples, a paired one for the difference; None for fewer than two. Without a walk no
    length is known: None.
    """
    ours, theirs = walks.get(TIDE, ()), walks.get(SPECFORGE, ())
    drafts = (FIRST, TIDE, SPECFORGE) if ours else ()
    lengths = {name: acceptance_length(walks[name]) for name in drafts} or None
    pairs = [(a.tokens, a.rounds, b.tokens, b.rounds) for a, b in zip(ours, theirs, strict=True)]
    interval = _interval(pairs, lambda sums: sums[0] / sums[1] - sums[2] / sums[3])
    return {
        "acceptance_length": lengths,
        "acceptance_intervals": {
            name: _interval([(one.tokens, one.rounds) for one in walks[name]], lambda sums: sums[0] / sums[1])
            for name in drafts
        }
        or None,
        "held_out_samples": len(ours),
        "held_out_tokens": sum(walk.tokens for walk in ours),
        "length_difference": lengths[TIDE] - lengths[SPECFORGE] if lengths else None,
        "length_interval": interval,
    }


def _interval(samples: Sequence[Sequence[float]], statistic: Callable[[np.ndarray], np.ndarray]) -> list[float] | None:
    """samples: the columns of each, whose sums the statistic takes."""
    table = np.array(samples, dtype=float).T[:, None] if samples else np.empty((1, 1, 0))  # all of them in one round
    ends = middle_95(resampled(table, statistic))
    return list(ends) if ends else None


def specforge_pass(output: str, tokens: int, passes: int) -> Timed:
    """The last of its passes, from the line that SpecForge prints after each step. TideError where there is none."""
    steps = [ast.literal_eval(line) for line in _STEP.findall(output)]
    last = steps[len(steps) - len(steps) // passes :]
    try:
        seconds = sum(step["perf/optimizer_step_time_s"] for step in last)
    except KeyError as error:
        raise TideError("SpecForge's output is not the expected one", why=f"it has no {error}") from None
    if not last:
        raise TideError("SpecForge has printed no step", why=" ".join(last_lines(output, 1)))
    return Timed(tokens, seconds, len(last))
