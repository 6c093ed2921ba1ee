"""The trainer as a model: it takes the supervisor's commands and answers with the events of the real one.

Weights that did not pass go on being trained; that they are given up where they are clearly worse, or for a kept
version's, is left out. So is the early end of a cycle: a draft that learns as modelled makes progress as long as it
trains.

What is trained on and judged by comes from the spool's samples as `training.material` picks them; the verdicts are the
gate's and the pool's own, over walks drawn from the acceptance model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tide_cli.adaptation.gate import GateDecision, Walk, decide, gate_rules, recent_count
from tide_cli.adaptation.pool import Kept, choose_version, walk_order
from tide_cli.hardware.memory import reservoir_size
from tide_cli.settings import Settings
from tide_cli.simulation.acceptance import Knowledge, Learnable, walks
from tide_cli.simulation.ring import Ring, Stored
from tide_cli.simulation.trainer import Trainer
from tide_cli.spool.layout import row_bytes

# As in training/material.py, adaptation/pool.py and training/judge.py, two of which import torch; a test compares them.
# POOL is how many kept versions a trainer walks at least: it walks more where ten seconds are not over by then.
NEWEST, POOL, POOL_SAMPLES = 256, 4, 24

Event = dict[str, Any]


class Learner:
    """speed: part of the trainer's device that it has. versions: what each published draft knows."""

    def __init__(
        self,
        settings: Settings,
        learnable: Learnable,
        trainer: Trainer,
        ring: Ring,
        *,
        speed: float,
        chance: np.random.Generator,
    ) -> None:
        self._settings, self._learnable, self._trainer, self._ring = settings, learnable, trainer, ring
        self._speed, self._chance = speed, chance
        self.versions: list[Knowledge] = [{}]
        self._parents: list[int | None] = [None]
        self._made: list[float] = [0.0]  # when each was, in seconds of the run
        self._bad: set[int] = set()
        self._training: Knowledge = {}
        self._parent = 0
        self._cycle = 0
        self._room = self._reservoir_tokens()
        self._offered: dict[int, int] = {}  # domain -> tokens that the reservoir was offered
        self._offered_to = 0  # id of the newest sample offered
        self._due: tuple[float, str, int] | None = None  # (when, work, version that was served)
        self._began = 0.0
        self.trained_tokens = self.busy_seconds = 0.0

    @property
    def busy(self) -> bool:
        return self._due is not None

    def tell(self, command: Mapping[str, Any], now: float) -> None:
        """'train' or 'choose', as the supervisor sends it; its events are due when the work would be done."""
        work, served = command["cmd"], int(command["served"])
        walked = self._walked(self._settings.gate_samples, 4) if work == "train" else self._walked(POOL_SAMPLES, POOL)
        seconds = walked / self._speed + (self._training_seconds() if work == "train" else 0.0)
        self._due, self._among = (now + seconds, work, served), command.get("among")
        self._began = now

    def busy_until(self, now: float) -> float:
        """Seconds of work so far."""
        return self.busy_seconds + (now - self._began if self._due is not None else 0.0)

    def due(self, now: float) -> list[Event]:
        """The events of work that has ended by now."""
        if self._due is None or self._due[0] > now:
            return []
        end, work, served = self._due
        self._due = None
        self.busy_seconds += end - self._began
        return self._cycle_events(served, end) if work == "train" else [self._pool_event(served)]

    def mark_bad(self, version: int) -> None:
        """A version was taken back."""
        self._bad.add(version)

    def _cycle_events(self, served: int, now: float) -> list[Event]:
        settings = self._settings
        self._cycle += 1
        if served != self._parent:
            self._parent, self._training = served, self.versions[served]
        fresh, held_out = self._ring.newest("train", NEWEST), self._ring.newest("held_out", settings.gate_samples)
        held_out = held_out[: recent_count([one.created for one in held_out], self._made[served])]
        if not fresh:
            return [{"event": "cycle_end", "published": None, "reason": "there is no sample to train on"}]
        self._train(fresh)
        decision = self._judge(served, held_out)
        figures = {"candidate_al": decision.candidate_al, "served_al": decision.served_al, "passed": decision.passed}
        gain: Event = {"gain": decision.gain, "lower_bound": decision.lower_bound}
        events: list[Event] = [{"event": "gate", "reason": decision.reason, **gain, **figures}]
        published = None
        if decision.passed:
            published = self._parent = len(self.versions)
            self.versions.append(self._training)
            self._parents.append(served)
            self._made.append(now)
            events.append({"event": "published", "version": published, "parent": served})
        events.append({"event": "cycle_end", "published": published, "reason": decision.reason})
        return [event | {"cycle": self._cycle} for event in events]

    def _train(self, fresh: Sequence[Stored]) -> None:
        distinct, settings = _by_domain(fresh), self._settings
        tokens = min(self._rate(fresh) * settings.cycle_seconds, settings.train_tokens or math.inf)
        old = self._old_tokens()
        share = settings.replay_share if old else 0.0
        drawn = _in_proportion(distinct, tokens * (1 - share))
        for domain, count in _in_proportion(old, tokens * share).items():
            drawn[domain] = drawn.get(domain, 0.0) + count
            distinct[domain] = distinct.get(domain, 0.0) + old[domain]
        self._training = self._learnable.trained(self._training, drawn, distinct)
        self.trained_tokens += tokens
        for sample in fresh:  # what is read is offered to the reservoir
            if sample.id > self._offered_to:
                self._offered[sample.domain] = self._offered.get(sample.domain, 0) + sample.tokens
        self._offered_to = max(self._offered_to, fresh[0].id)

    def _rate(self, fresh: Sequence[Stored]) -> float:
        """Tokens/s in training."""
        generated = sum(one.generated for one in fresh) / sum(one.tokens for one in fresh)
        return self._trainer.tokens_per_second(self._settings.batch_tokens, generated) * self._speed

    def _training_seconds(self) -> float:
        """Of a cycle that begins, until its time or its tokens are used up."""
        settings, fresh = self._settings, self._ring.newest("train", NEWEST)
        if settings.train_tokens is None or not fresh:
            return settings.cycle_seconds
        return min(settings.cycle_seconds, settings.train_tokens / self._rate(fresh))

    def _old_tokens(self) -> dict[int, float]:
        """Tokens in the reservoir, by domain: a fair draw of all that it was offered."""
        offered = sum(self._offered.values())
        return {domain: count * min(1.0, self._room / offered) for domain, count in self._offered.items()}

    def _reservoir_tokens(self) -> float:
        """Tokens that the reservoir has room for."""
        settings, layout, row = self._settings, self._ring.layout, row_bytes(self._ring.layout.hidden_size)
        ring, longest = layout.size_for(self._ring.pages), settings.max_sample_tokens
        return reservoir_size(settings.reservoir_size, ring=ring, row=row, sample_tokens=longest) / row

    def _judge(self, served: int, held_out: Sequence[Stored]) -> GateDecision:
        walked = [one for one in held_out if one.generated > 1]
        candidate, now = self._walks((self._training, self.versions[served]), walked)
        old = self._old_samples()
        old_candidate, old_now = self._walks((self._training, self.versions[served]), old)
        return decide(candidate, now, old_candidate=old_candidate, old_served=old_now, **gate_rules(self._settings))

    def _pool_event(self, served: int) -> Event:
        kept = [Kept(version, self._parents[version], {}) for version in range(len(self.versions))]
        versions = self._among or walk_order(kept, served, POOL, self._bad).versions
        untrained = [one for one in self._ring.newest("train", POOL_SAMPLES) if one.id > self._offered_to]
        newest = sorted(untrained + self._ring.newest("held_out", POOL_SAMPLES), key=_id)
        samples = [one for one in newest[-POOL_SAMPLES:] if one.generated > 1]
        first, *others = self._walks([self.versions[version] for version in (served, *versions)], samples)
        decision = choose_version(dict(zip(versions, others, strict=True)), first, **gate_rules(self._settings))
        return {"event": "pool", "version": decision.version, "served": served, "reason": decision.reason}

    def _walks(self, versions: Sequence[Knowledge], samples: Sequence[Stored]) -> list[list[Walk]]:
        rates = [tuple(self._learnable.rate(one, sample.domain) for one in versions) for sample in samples]
        if not samples:
            return [[] for _ in versions]
        return walks(self._chance, rates, [sample.generated for sample in samples], self._learnable.steps)

    def _old_samples(self) -> list[Stored]:
        """Held-out samples of the reservoir, of the domains that it holds."""
        old, known = self._old_tokens(), list(self._ring.samples)
        if not old or not known:
            return []
        mean = sum(one.tokens for one in known) / len(known)
        count = min(self._settings.gate_samples, int(sum(old.values()) / mean * self._settings.held_out_share))
        shares = np.array(list(old.values())) / sum(old.values())
        domains = self._chance.choice(list(old), size=count, p=shares)
        return [Stored(0, 0.0, round(mean), max(2, known[-1].generated), 0, 0, "held_out", int(d)) for d in domains]

    def _walked(self, samples: int, drafts: int) -> float:
        """Seconds in which so many samples are walked by so many drafts."""
        known = self._ring.samples
        rows = known[-1].generated if known else 0
        return self._trainer.walk_seconds(samples * drafts * rows)


def _id(sample: Stored) -> int:
    return sample.id


def _by_domain(samples: Sequence[Stored]) -> dict[int, float]:
    tokens: dict[int, float] = {}
    for one in samples:
        tokens[one.domain] = tokens.get(one.domain, 0.0) + one.tokens
    return tokens


def _in_proportion(shares: Mapping[int, float], total: float) -> dict[int, float]:
    whole = sum(shares.values())
    return {domain: total * share / whole for domain, share in shares.items()}
