"""How often the gate errs, on pairs of drafts whose truth is known: `python tests/adaptation/gate_table.py [GATES]`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from simulated import paired_walks

from tide_cli.adaptation.gate import decide

SIZES = (12, 16, 24, 48)
SETTINGS = {"margin": 0.02, "confidence": 0.95, "floor": 0.10, "domain_floor": 0.10}  # as in settings.py

# half of the traffic is code
DOMAINS = ("code", "sql", "code", "chat", "code", "qa")
SERVED = (1.77, 1.53, 1.77, 1.37, 1.77, 1.37)


@dataclass(frozen=True)
class Truth:
    """A candidate: its acceptance length over the served draft's, on code and elsewhere; whether it should pass."""

    on_code: float
    elsewhere: float
    better: bool

    @property
    def lengths(self) -> list[tuple[float, float]]:
        factors = [self.on_code if name == "code" else self.elsewhere for name in DOMAINS]
        return [(1 + (al - 1) * 0.02 if f == 0 else al * f, al) for al, f in zip(SERVED, factors, strict=True)]


TRUTHS = {
    "equal": Truth(1, 1, False),
    "1 % better": Truth(1.01, 1.01, True),
    "3 % better": Truth(1.03, 1.03, True),
    "10 % better": Truth(1.10, 1.10, True),
    "3 % worse": Truth(0.97, 0.97, False),
    "broken": Truth(0, 0, False),
    "overfitted to code": Truth(1.60, 0.88, False),
}


def passes(name: str, size: int, gates: int) -> tuple[int, int]:
    """How many of `gates` gates of `size` samples let the candidate pass: without domain labels, and with them.

    The same numbers at every run.
    """
    chance = np.random.default_rng([size, list(TRUTHS).index(name)])
    plain = guarded = 0
    for seed in range(gates):
        candidate, served, domains = paired_walks(chance, size, TRUTHS[name].lengths, DOMAINS)
        plain += decide(candidate, served, seed=seed, **SETTINGS).passed
        guarded += decide(candidate, served, seed=seed, domains=domains, **SETTINGS).passed
    return plain, guarded


def main() -> None:
    gates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{gates} gates each: deployed without domain labels / with them")
    print(f"{'truth':<20}" + "".join(f"{f'{size} samples':>14}" for size in SIZES) + "  wrong is to")
    for name, truth in TRUTHS.items():
        cells = [" / ".join(map(str, passes(name, size, gates))) for size in SIZES]
        print(f"{name:<20}" + "".join(f"{cell:>14}" for cell in cells) + f"  {'refuse' if truth.better else 'deploy'}")


if __name__ == "__main__":
    main()
