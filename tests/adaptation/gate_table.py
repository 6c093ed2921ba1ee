"""How often the gate and its floor err, on pairs of drafts whose truth is known.

`python tests/adaptation/gate_table.py [GATES]`
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from simulated import paired_walks

from tide_cli.adaptation.gate import Walk, decide, domain_losses

SIZES = (12, 16, 24, 48)
OLD_SIZES = (2, 4, 8, 24)
LOSSES = (-0.10, 0.0, 0.10, 0.20, 0.30)  # acceptance length lost on old samples; the floor allows 0.10
TENANTS = (4, 12, 24)  # among whom TENANT_SAMPLES are shared out evenly
TENANT_SAMPLES = 48
FEW = (4, 8, 12)  # of them of a tenant that loses much; a divisor of 48
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


def passes_by_chance(size: int, gates: int, confidence: float) -> int:
    """How many of `gates` gates without a margin let an equal candidate pass, which is what `confidence` is about.

    The same numbers at every run.
    """
    chance = np.random.default_rng([size, gates])
    lengths = [(al, al) for al in SERVED]
    passed = 0
    for seed in range(gates):
        candidate, served, _ = paired_walks(chance, size, lengths, DOMAINS)
        passed += decide(candidate, served, seed=seed, **SETTINGS | {"confidence": confidence, "margin": 0.0}).passed
    return passed


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


def refused_by_domains(gains: float, tenants: int, gates: int) -> int:
    """How many of `gates` candidates that gain so much everywhere the floor of a domain stops, whatever their bound.

    The same numbers at every run.
    """
    chance = np.random.default_rng([tenants, round(100 * gains)])
    labels = [f"tenant {number % tenants}" for number in range(TENANT_SAMPLES)]
    lengths = [(al + gains, al) for al in (SERVED[number % tenants % len(SERVED)] for number in range(TENANT_SAMPLES))]
    return _stopped(chance, lengths, labels, gates)


def refused_for_one(loses: float, samples: int, tenants: int, gates: int) -> int:
    """The same of candidates that lose so much on one tenant of so many samples and gain 0.1 on all others."""
    chance = np.random.default_rng([tenants, samples, round(100 * loses)])
    others = iter(range(TENANT_SAMPLES))
    labels = [
        "loser" if number % (TENANT_SAMPLES // samples) == 0 else f"tenant {next(others) % (tenants - 1)}"
        for number in range(TENANT_SAMPLES)
    ]
    lengths = [
        (1.53 - loses, 1.53) if name == "loser" else ((al := SERVED[int(name.split()[1]) % len(SERVED)]) + 0.1, al)
        for name in labels
    ]
    return _stopped(chance, lengths, labels, gates)


def _stopped(chance: np.random.Generator, lengths: list[tuple[float, float]], labels: list[str], gates: int) -> int:
    stopped = 0
    for _ in range(gates):
        losses = domain_losses(*paired_walks(chance, TENANT_SAMPLES, lengths, labels))
        stopped += any(loss.exceeds(SETTINGS["domain_floor"])[0] for loss in losses.values())
    return stopped


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
    print(
        f"\n{gates} candidates each on {TENANT_SAMPLES} samples: refused by the floor of a domain, whatever their bound"
    )
    print(f"{'truth':<32}" + "".join(f"{f'{tenants} tenants':>14}" for tenants in TENANTS))
    for gains in (0.0, 0.05, 0.10):
        cells = [refused_by_domains(gains, tenants, gates) for tenants in TENANTS]
        print(f"{f'gains {gains:.2f} everywhere':<32}" + "".join(f"{cell:>14}" for cell in cells))
    for samples in FEW:
        cells = [refused_for_one(0.30, samples, tenants, gates) for tenants in TENANTS]
        print(f"{f'one of {samples} samples loses 0.30':<32}" + "".join(f"{cell:>14}" for cell in cells))


if __name__ == "__main__":
    main()
