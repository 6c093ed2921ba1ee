"""Live acceptance length as a sum of observations, with how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Lengths:
    """Sums over observations, each a number of completion tokens given in a number of verify steps.

    Requests differ in how well they can be drafted, so an observation should hold whole requests or a stretch of
    many; the spread between observations is what the variance is made of. Plain numbers: asdict() is its JSON.
    """

    count: int = 0
    tokens: float = 0.0
    steps: float = 0.0
    tokens_squared: float = 0.0
    steps_squared: float = 0.0
    products: float = 0.0

    def add(self, tokens: float, steps: float) -> Lengths:
        """With one observation more; one without a verify step says nothing. ValueError for negative numbers."""
        if tokens < 0 or steps < 0:
            raise ValueError(f"an observation of {tokens} tokens in {steps} steps")
        if steps == 0:
            return self
        return Lengths(
            self.count + 1,
            self.tokens + tokens,
            self.steps + steps,
            self.tokens_squared + tokens**2,
            self.steps_squared + steps**2,
            self.products + tokens * steps,
        )

    @property
    def length(self) -> float:
        """Tokens per verify step; 0.0 before any."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def variance(self) -> float:
        """Of `length`: that of a ratio estimator, from its residuals tokens - length·steps. Infinite below two."""
        if self.count < 2:
            return float("inf")
        ratio = self.length
        residuals = self.tokens_squared - 2 * ratio * self.products + ratio**2 * self.steps_squared
        return max(0.0, residuals) * self.count / (self.count - 1) / self.steps**2


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t with `freedom` >= 1 degrees, by its Cornish-Fisher expansion (exact to 1 % from 4 on)."""
    z = NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
