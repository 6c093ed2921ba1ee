"""The engine as a model: requests are batched continuously, in rounds of a length that the machine's model gives.

A request that is admitted is prefilled at once, and nothing is decoded meanwhile. Then it takes part in every round
until its answer is whole; a round brings it the expected number of tokens, so the model has no chance of its own. The
number of draft steps is the product's speculation policy's, told what rounds cost at short contexts (which is what a
start measures) and the mean acceptance of the running requests, which is what its counts settle at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from tide_cli.adaptation.speculation import (
    Acceptance,
    SpeculationRules,
    SpeculationState,
    choose,
    expected_length,
)
from tide_cli.simulation.arrivals import Ask
from tide_cli.simulation.machine import Machine
from tide_cli.telemetry.totals import ServedRequest

Rate = Callable[[float, Ask], float]  # (when it arrived, request) -> its rate of acceptance with the served draft

_PROBED = SpeculationRules.probe_share  # of the rounds of a plain engine, with draft steps all the same


class Steps:
    """The number of draft steps. mode: the setting `speculation`."""

    def __init__(self, mode: str | int, rules: SpeculationRules, machine: Machine) -> None:
        self._mode, self._rules, self._machine = mode, rules, machine
        self._state = SpeculationState.initial(rules, rules.most_steps)
        self._known: tuple[int, float] | None = None
        self.most = rules.most_steps
        self.now = {"on": rules.most_steps, "off": 0, "auto": rules.most_steps}.get(str(mode), mode)

    def choose(self, batch: int, rate: float, rounds: int) -> int:
        """For the next rounds of `batch` requests. rounds: since it was asked before."""
        asked = (batch, round(rate, 2))
        if self._mode != "auto" or asked == self._known:
            return int(self.now)
        self._known, rules = asked, self._rules
        judged = tuple(rules.memory * asked[1] ** position for position in range(rules.most_steps))
        seen = Acceptance(judged, tuple(count * asked[1] for count in judged))
        state = replace(self._state, acceptance=seen, rounds=self._state.rounds + rounds, steady=0)
        self._state, decision = choose(state, rules, self._machine, batch)
        self.now = decision.steps
        return int(self.now)


@dataclass
class _Running:
    """left: tokens still to come; rounds, tokens: of rounds with proposals, told as if of the most draft steps: as the
    engine's plugin does."""

    ask: Ask
    at: float
    version: int
    rate: float
    left: float
    gain: float = 1.0  # tokens a round
    most_gain: float = 1.0  # with the most draft steps
    rounds: float = 0.0
    tokens: float = 0.0

    @property
    def context(self) -> float:
        return self.ask.input_tokens + self.ask.output_tokens / 2


@dataclass(frozen=True)
class Finished:
    """at: when its answer was whole; arrived: when it was asked; served: what is known of its acceptance;
    stored: whether the spool has a sample of it."""

    ask: Ask
    at: float
    arrived: float
    served: ServedRequest
    stored: bool = False


class Engine:
    """slots: requests decoded together at most; cache_tokens: of all that run. rate: of a request's proposals."""

    def __init__(
        self, machine: Machine, asks: Iterator[Ask], steps: Steps, rate: Rate, *, slots: int, cache_tokens: int | None
    ) -> None:
        self._machine, self._asks, self._steps, self._rate = machine, asks, steps, rate
        self._slots, self._cache_tokens = slots, cache_tokens
        self._next: Ask | None = next(asks, None)
        self._waiting: deque[tuple[float, Ask]] = deque()
        self._running: list[_Running] = []
        self._since = 0
        self.now = 0.0
        self.version = 0
        self.slowdown = 1.0  # of rounds and prompts, while something else uses the same GPU
        self.tokens = self.rounds = 0.0  # of answers; of verification, counted a request
        self.requested = 0  # tokens of the answers that were asked for, those of refused requests left out
        self.arrived = self.refused = self.ended = 0
        self._arrivals = self._latency = 0.0  # sums of times: when those in the system came; of those that have left
        self.admitted: list[Ask] = []
        self.finished: list[Finished] = []

    @property
    def steps(self) -> int:
        return int(self._steps.now)

    @property
    def in_system(self) -> int:
        return self.arrived - self.refused - self.ended

    @property
    def idle_for_good(self) -> bool:
        """Nothing is asked any more, and all answers are given."""
        return self._next is None and not self.in_system

    @property
    def request_seconds(self) -> float:
        """Seconds that clients have waited, all together."""
        return self._latency + self.in_system * self.now - self._arrivals

    def ask_at_once(self, count: int) -> None:
        """So many requests of a load that keeps its number arrive."""
        for _ in range(count):
            while self._next is not None and not self._arrive(self.now):
                pass

    def serve(self, version: int) -> None:
        """Another draft: running requests go on with it."""
        self.version = version
        for one in self._running:
            one.rate = self._rate(one.at, one.ask)
        self._retune(self.steps)

    def advance(self, until: float) -> None:
        """Up to that time, and perhaps a round further."""
        while self.now < until:
            while self._next is not None and self._next.at is not None and self._next.at <= self.now:
                self._arrive(self._next.at)
            self._admit()
            if not self._running:
                later = self._next.at if self._next is not None and self._next.at is not None else until
                self.now = max(self.now, min(until, later))
            else:
                self._decode(until)

    def _arrive(self, at: float) -> bool:
        """Whether the next request is one that can be served at all."""
        ask = self._next
        assert ask is not None
        self._next = next(self._asks, None)
        self.arrived += 1
        if self._cache_tokens is not None and ask.input_tokens + ask.output_tokens > self._cache_tokens:
            self.refused += 1  # longer than the whole KV cache
            return False
        self._waiting.append((at, ask))
        self._arrivals += at
        self.requested += ask.output_tokens
        return True

    def _admit(self) -> None:
        used = sum(one.ask.input_tokens + one.ask.output_tokens for one in self._running)
        prompts = 0
        while self._waiting and len(self._running) < self._slots:
            at, ask = self._waiting[0]
            used += ask.input_tokens + ask.output_tokens
            if self._cache_tokens is not None and used > self._cache_tokens:
                break
            self._waiting.popleft()
            prompts += ask.input_tokens
            self.admitted.append(ask)
            one = _Running(ask, at, self.version, self._rate(at, ask), float(ask.output_tokens))
            self._running.append(one)
        if prompts:
            self.now += self._machine.prefill_seconds(prompts) * self.slowdown
            self._retune(self._choose())

    def _choose(self) -> int:
        rate = sum(one.rate for one in self._running) / len(self._running)
        steps, self._since = self._steps.choose(len(self._running), rate, self._since), 0
        return steps

    def _retune(self, steps: int) -> None:
        for one in self._running:
            one.gain = expected_length([one.rate] * steps)
            one.most_gain = expected_length([one.rate] * self._steps.most)

    def _decode(self, until: float) -> None:
        """Rounds until a request ends, or something else may happen."""
        running, before = self._running, self.steps
        steps = self._choose()
        if steps != before:
            self._retune(steps)
        context = sum(one.context for one in running) / len(running)
        seconds = self._machine.round_seconds(len(running), steps, context) * self.slowdown
        limit = until
        if self._next is not None and self._next.at is not None and len(running) < self._slots:
            limit = min(until, self._next.at)
        first = min(one.left / one.gain for one in running)
        rounds = max(1, min(ceil(first), ceil((limit - self.now) / seconds)))
        self.now += rounds * seconds
        self._since += rounds
        seen = rounds if steps else rounds * _PROBED
        for one in running:
            gained = min(one.left, rounds * one.gain)
            one.left -= gained
            self.tokens += gained
            self.rounds += gained / one.gain
            one.rounds += seen
            one.tokens += seen * one.most_gain
        if any(one.left <= 1e-9 for one in running):
            self._end([one for one in running if one.left <= 1e-9])

    def _end(self, gone: list[_Running]) -> None:
        self._running = [one for one in self._running if one.left > 1e-9]
        for one in gone:
            self.ended += 1
            self._latency += self.now - one.at
            self._arrivals -= one.at
            served = ServedRequest(one.ask.number, one.version, round(one.tokens), round(one.rounds))
            self.finished.append(Finished(one.ask, self.now, one.at, served))
        if self._next is not None and self._next.at is None:
            self.ask_at_once(len(gone))
