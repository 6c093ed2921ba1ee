"""Walks and series of two drafts whose truth is known.

Their spread is that of real ones: 266 samples of code, SQL and chat that SmolLM2-135M generated, walked with three
versions of one draft, code-trained. Tokens generated: 88 to 137 on average, long-tailed. The rate at which a proposal
is accepted varies between samples of a domain with a standard deviation of 0.08 to 0.10, and two versions' rates on
the same sample by up to 0.06 around their common shift. Within a sample rounds are as good as independent (correlation
of neighbours -0.03 to 0.02), and the three positions' rates nearly equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from tide_cli.adaptation.gate import Walk

STEPS = 3
BETWEEN_SAMPLES = 0.09
BETWEEN_DRAFTS = 0.05


@cache
def rate_of(length: float) -> float:
    """The acceptance rate of a proposal at which rounds of STEPS have this acceptance length."""
    rates = np.linspace(0, 1, 20_001)
    return float(np.interp(length, 1 + rates + rates**2 + rates**3, rates))


def paired_walks(
    chance: np.random.Generator, count: int, lengths: Sequence[tuple[float, float]], domains: Sequence[str] = ("one",)
) -> tuple[list[Walk], list[Walk], list[str]]:
    """(candidate's, served draft's, domain) of `count` samples; sample i is of domain i mod len(domains).

    lengths: acceptance length of candidate and served draft in each domain.
    """
    candidate, served, labels = [], [], []
    for number in range(count):
        place = number % len(domains)
        tokens = int(np.clip(chance.lognormal(4.6, 0.5), 16, 400))
        ease, own = chance.normal(0, BETWEEN_SAMPLES), chance.normal(0, BETWEEN_DRAFTS)
        for walks, length, shift in zip((candidate, served), lengths[place], (ease + own, ease), strict=True):
            accepted = rounds_of(chance, rate_of(length) + shift, tokens)
            walks.append(Walk(tokens, len(accepted)))
        labels.append(domains[place])
    return candidate, served, labels


def rounds_of(chance: np.random.Generator, rate: float, tokens: int) -> list[int]:
    """Accepted proposals of each round until `tokens` are there."""
    accepted = np.minimum(chance.geometric(1 - np.clip(rate, 0.0, 0.97), size=tokens) - 1, STEPS)
    return accepted[: int(np.searchsorted((accepted + 1).cumsum(), tokens)) + 1].tolist()


def request(chance: np.random.Generator, length: float, longer: float = 1.0) -> tuple[int, int]:
    """(completion tokens, verify steps) of one request at this acceptance length of the domain; longer: than the
    samples, by this factor."""
    tokens = int(longer * np.clip(chance.lognormal(4.6, 0.5), 16, 400))
    return tokens, len(rounds_of(chance, rate_of(length) + chance.normal(0, BETWEEN_SAMPLES), tokens))
