"""One simulated run: the supervisor's `Learning` over a modelled engine and trainer, on a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tide_cli.adaptation.drift import DriftRules
from tide_cli.adaptation.rollback import RollbackRules
from tide_cli.adaptation.speculation import SpeculationRules
from tide_cli.adaptation.trigger import TriggerRules
from tide_cli.settings import Settings
from tide_cli.simulation.acceptance import MOST_RATE, Learnable
from tide_cli.simulation.arrivals import Ask, Load
from tide_cli.simulation.engine import Engine, Finished, Steps
from tide_cli.simulation.learner import Learner
from tide_cli.simulation.machine import Machine
from tide_cli.simulation.ring import Ring
from tide_cli.simulation.trainer import Trainer
from tide_cli.supervisor.cycle_trigger import CycleTrigger
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.messages import Action, MarkBad, Note, Swap, Swapped, Tell
from tide_cli.supervisor.performance import Performance
from tide_cli.telemetry.totals import ServedRequest

TICK = 2.0  # seconds; the supervisor looks at the spool as often
_ENGINE = 1  # its generation: it is never restarted


@dataclass(frozen=True)
class Setup:
    """What is simulated. trainer: None trains nothing; share: part of a serving GPU that a sharing trainer takes while
    it trains, 0 where it has a device of its own. domains, shift: kinds of traffic, and seconds after which the next
    one comes. cache_tokens: of the KV cache, None where it is not known. duration: seconds."""

    machine: Machine
    settings: Settings
    learnable: Learnable
    load: Load
    ring: Ring
    duration: float
    trainer: Trainer | None = None
    share: float = 0.0
    cache_tokens: int | None = None
    domains: int = 1
    shift: float = float("inf")


@dataclass(frozen=True)
class Point:
    """How far a run has come at a moment. tokens, request_seconds: totals; length: acceptance length since the point
    before, None without a round; stored: rows in the spool since the beginning; oldest: age of its oldest sample."""

    at: float
    tokens: float
    request_seconds: float
    length: float | None
    steps: int
    version: int
    training: bool
    stored: int
    oldest: float | None


@dataclass(frozen=True)
class Event:
    """A decision, as `tide events` would show it."""

    at: float
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """points: one each tick; swaps: (time, version). arrived, refused, ended, in_system: requests; requested: tokens of
    all answers asked for; latency: mean seconds from a request's arrival to its last token, None without any."""

    points: Sequence[Point]
    events: Sequence[Event]
    swaps: Sequence[tuple[float, int]]
    finished: Sequence[Finished]
    arrived: int
    refused: int
    ended: int
    in_system: int
    requested: int
    latency: float | None
    trained_tokens: float
    busy_seconds: float

    @property
    def seconds(self) -> float:
        return self.points[-1].at

    @property
    def tokens(self) -> float:
        return self.points[-1].tokens

    def rate(self, since: float = 0.0) -> float:
        """Output tokens/s from a moment on to the end."""
        first = next(point for point in self.points if point.at >= since)
        span = self.seconds - first.at
        return (self.tokens - first.tokens) / span if span else 0.0

    def length(self, since: float = 0.0) -> float | None:
        """Mean acceptance length of the points from a moment on."""
        lengths = [point.length for point in self.points if point.at >= since and point.length is not None]
        return sum(lengths) / len(lengths) if lengths else None


def simulate(setup: Setup) -> Run:
    """Run it; the same setup gives the same run. The ring is used up."""
    return _Simulation(setup).run()


class _Simulation:
    def __init__(self, setup: Setup) -> None:
        self._setup, settings = setup, setup.settings
        rules = SpeculationRules(most_steps=settings.draft_steps, margin=settings.speculation_margin)
        steps = Steps(settings.speculation, rules, setup.machine)
        self._stores = np.random.default_rng(settings.seed + 1)
        self._engine = Engine(
            setup.machine,
            setup.load.asks(settings.seed),
            steps,
            self._rate,
            slots=settings.max_running_requests,
            cache_tokens=setup.cache_tokens,
        )
        self._learner: Learner | None = None
        self._learning: Learning | None = None
        if setup.trainer is not None:
            chance = np.random.default_rng(settings.seed + 2)
            speed = setup.share or 1.0
            self._learner = Learner(settings, setup.learnable, setup.trainer, setup.ring, speed=speed, chance=chance)
            tokens = settings.cycle_tokens
            most_share = settings.train_share if setup.share else 1.0
            trigger_rules = TriggerRules(
                tokens,
                settings.cycle_every,
                max(1, tokens // 4),
                most_share=most_share,
                margin=settings.gate_margin,
            )
            self._learning = Learning(
                CycleTrigger(trigger_rules),
                Performance(DriftRules(settings.drift_epsilon), RollbackRules(settings.rollback_margin)),
                pool=settings.draft_pool,
            )
            self._learning.serving.starts_with(0)
        self._events: list[Event] = []
        self._swaps: list[tuple[float, int]] = []
        self._finished: list[Finished] = []

    def run(self) -> Run:
        setup, engine = self._setup, self._engine
        engine.ask_at_once(setup.load.concurrency or 0)
        points, before = [Point(0.0, 0.0, 0.0, None, engine.steps, 0, False, 0, None)], (0.0, 0.0)
        while points[-1].at < setup.duration and not engine.idle_for_good:
            engine.advance(points[-1].at + TICK)
            ended = self._take_ended()
            if self._learning is not None:
                self._decide(ended)
            tokens, rounds = engine.tokens - before[0], engine.rounds - before[1]
            before = engine.tokens, engine.rounds
            points.append(self._point(points[-1].at + TICK, tokens / rounds if rounds else None))
        latency = sum(one.at - one.arrived for one in self._finished) / len(self._finished) if self._finished else None
        learner = self._learner
        return Run(
            points,
            self._events,
            self._swaps,
            self._finished,
            engine.arrived,
            engine.refused,
            engine.ended,
            engine.in_system,
            engine.requested,
            latency,
            learner.trained_tokens if learner else 0.0,
            learner.busy_until(points[-1].at) if learner else 0.0,
        )

    def _rate(self, at: float, ask: Ask) -> float:
        """Of a request that came at a moment, with the draft in service."""
        knowledge = self._learner.versions[self._engine.version] if self._learner else {}
        rate = self._setup.learnable.rate(knowledge, self._domain(at))
        return min(MOST_RATE, max(0.0, rate + ask.ease))

    def _domain(self, at: float) -> int:
        return int(at // self._setup.shift) % self._setup.domains

    def _take_ended(self) -> list[ServedRequest]:
        """Stores what the engine has prefilled and finished; what the supervisor reads of it in the index."""
        setup, engine, ring = self._setup, self._engine, self._setup.ring
        for ask in engine.admitted:
            if self._stores.random() < setup.settings.capture_sample_rate:
                ring.begin(ask.number, ask.input_tokens)
        seen = []
        for one in engine.finished:
            asked, answered = one.ask.input_tokens, one.ask.output_tokens
            stored = ring.finish(one.ask.number, asked, answered, one.at, self._domain(one.arrived))
            self._finished.append(replace(one, stored=stored))
            if stored and one.served.steps:
                seen.append(one.served)
        engine.admitted, engine.finished = [], []
        if setup.settings.retention_hours is not None:
            ring.expire(engine.now - setup.settings.retention_hours * 3600)
        return seen

    def _decide(self, ended: Sequence[ServedRequest]) -> None:
        learning, learner, engine = self._learning, self._learner, self._engine
        assert learning is not None
        assert learner is not None
        now = engine.now
        actions: list[Action] = learning.observed(ended, now)
        for event in learner.due(now):
            actions += learning.trainer_said(event, now)
        learning.totals = {"tokens": self._setup.ring.tokens}
        actions += learning.pursue(_ENGINE, True, now)
        while actions:
            action = actions.pop(0)
            match action:
                case Tell(command):
                    learner.tell(command, now)
                case Swap(version, generation):
                    engine.serve(version)
                    self._swaps.append((now, version))
                    actions += learning.swapped(Swapped(version, generation), now)
                case MarkBad(version, _):
                    learner.mark_bad(version)
                case Note(kind, text, data):
                    self._events.append(Event(now, kind, text, dict(data)))
        engine.slowdown = 1 / (1 - self._setup.share) if learner.busy else 1.0

    def _point(self, at: float, length: float | None) -> Point:
        engine, ring, learner = self._engine, self._setup.ring, self._learner
        return Point(
            at,
            engine.tokens,
            engine.request_seconds,
            length,
            engine.steps,
            engine.version,
            bool(learner and learner.busy),
            ring.tokens,
            ring.oldest_age(engine.now),
        )
