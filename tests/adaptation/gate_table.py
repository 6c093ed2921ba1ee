"""How often the gate and its floor err, on pairs of drafts whose truth is known.

`python tests/adaptation/gate_table.py [GATES]`
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from simulated import paired_walks

from tide_cli.adaptation.gate import Walk, decide

SIZES = (12, 16, 24, 48)
OLD_SIZES = (2, 4, 8, 24)
LOSSES = (-0.10, 0.0, 0.10, 0.20, 0.30)  # acceptance length lost on old samples; the floor allows 0.10
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


def refused(loss: float, size: int, gates: int) -> int:
    """How many of `gates` candidates the floor refuses that gain on recent samples and lose so much on `size` old ones.

    The same numbers at every run.
    """
    chance = np.random.default_rng([size, LOSSES.index(loss)])
    recent = [Walk(30, 10)] * 8, [Walk(20, 10)] * 8
    passed = 0
    for seed in range(gates):
        candidate, served, _ = paired_walks(chance, size, [(max(1.02, al - loss), al) for al in SERVED], DOMAINS)
        passed += decide(*recent, seed=seed, old_candidate=candidate, old_served=served, **SETTINGS).passed
    return gates - passed


def main() -> None:
    gates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{gates} gates each: deployed without domain labels / with them")
    print(f"{'truth':<20}" + "".join(f"{f'{size} samples':>14}" for size in SIZES) + "  wrong is to")
    for name, truth in TRUTHS.items():
        cells = [" / ".join(map(str, passes(name, size, gates))) for size in SIZES]
        print(f"{name:<20}" + "".join(f"{cell:>14}" for cell in cells) + f"  {'refuse' if truth.better else 'deploy'}")
    print(f"\n{gates} candidates each that gain on recent samples: refused by the floor {SETTINGS['floor']}")
    print(f"{'lost on old samples':<20}" + "".join(f"{f'{size} samples':>14}" for size in OLD_SIZES))
    for loss in LOSSES:
        print(f"{loss:<20}" + "".join(f"{refused(loss, size, gates):>14}" for size in OLD_SIZES))


if __name__ == "__main__":
    main()
