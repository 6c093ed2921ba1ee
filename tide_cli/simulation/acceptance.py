"""How well a draft does on the traffic, as a function of what it was trained on. An assumption, with stated knobs.

A draft knows each domain by an effective number of tokens x. Its acceptance length there rises from `first` towards
`reachable` as 1 - e^(-x/scale); training on other domains makes it forget with a scale of its own. A token that is
trained on again is worth less and less: n tokens of which u are distinct count as
u·(1 + R·(1 - e^(-(n/u - 1)/R))) with R = 15.4, the law of data-constrained language models (Muennighoff et al. 2023,
arXiv 2305.16264). Requests differ: their rate of acceptance varies by 0.09 (standard deviation) around the domain's,
two versions on the same request by 0.05 around their shift, as measured on the embedded target (tests/adaptation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp

import numpy as np

from tide_cli.adaptation.gate import Walk
from tide_cli.adaptation.speculation import rate_from_totals

BETWEEN_REQUESTS, BETWEEN_VERSIONS = 0.09, 0.05
_REPEATS = 15.4
MOST_RATE = 0.97

Knowledge = Mapping[int, float]  # domain to effective tokens


@dataclass(frozen=True)
class Learnable:
    """first, reachable: acceptance length at `steps` draft steps before and after training; scale: effective tokens
    after which 1 - 1/e of the gain is there; forget: tokens of other domains after which 1/e of a domain's is left."""

    first: float
    reachable: float
    scale: float
    forget: float
    steps: int

    def length(self, knowledge: Knowledge, domain: int) -> float:
        """Acceptance length on a domain."""
        learned = 1 - exp(-knowledge.get(domain, 0.0) / self.scale)
        return self.first + (self.reachable - self.first) * learned

    def rate(self, knowledge: Knowledge, domain: int) -> float:
        """Probability that a proposal is accepted where all before it were."""
        return rate_of(self.length(knowledge, domain), self.steps)

    def trained(self, knowledge: Knowledge, drawn: Mapping[int, float], distinct: Mapping[int, float]) -> Knowledge:
        """After so many tokens of each domain in training, of which so many are different ones."""
        total = sum(drawn.values())
        after = {}
        for domain in knowledge.keys() | drawn.keys():
            own = drawn.get(domain, 0.0)
            kept = knowledge.get(domain, 0.0) * exp(-(total - own) / self.forget)
            after[domain] = kept + effective_tokens(own, distinct.get(domain, 0.0))
        return after


@cache
def rate_of(length: float, steps: int) -> float:
    """The rate at which rounds of `steps` have this acceptance length."""
    return min(MOST_RATE, rate_from_totals(max(0.0, length - 1), 1, steps))


def effective_tokens(drawn: float, distinct: float) -> float:
    """What `drawn` tokens are worth of which only `distinct` differ; at most what they are without repetition."""
    if drawn <= distinct or not distinct:
        return min(drawn, distinct)
    return distinct * (1 + _REPEATS * (1 - exp(-(drawn / distinct - 1) / _REPEATS)))


def walks(
    chance: np.random.Generator, rates: Sequence[tuple[float, ...]], tokens: Sequence[int], steps: int
) -> list[list[Walk]]:
    """For each version its walk of each sample: rates[i] has the versions' rates on sample i, of tokens[i] tokens."""
    found: list[list[Walk]] = [[] for _ in (rates[0] if rates else ())]
    for sample, length in zip(rates, tokens, strict=True):
        ease = chance.normal(0, BETWEEN_REQUESTS)
        for version, rate in enumerate(sample):
            own = chance.normal(0, BETWEEN_VERSIONS) if version else 0.0
            found[version].append(Walk(length, _rounds(chance, rate + ease + own, length, steps)))
    return found


def _rounds(chance: np.random.Generator, rate: float, tokens: int, steps: int) -> int:
    accepted = np.minimum(chance.geometric(1 - np.clip(rate, 0.0, MOST_RATE), size=tokens) - 1, steps)
    return int(np.searchsorted((accepted + 1).cumsum(), tokens)) + 1
