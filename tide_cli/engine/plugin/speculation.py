"""The number of draft steps of each decode round: SGLang's adaptive runtime states, TIDE's policy.

With `--speculative-adaptive` SGLang keeps what a round needs (attention backends, graphs) once for each number of
steps, and asks its controller's `params` which one the next round takes. `SpeculationControl` answers in their place:
from the policy in tide_cli.adaptation.speculation, the measured round times, and what the target has accepted.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

import torch
from sglang.srt.runtime_context import get_parallel

from tide_cli.adaptation.decided import decided_from
from tide_cli.adaptation.speculation import (
    Acceptance,
    RoundSeconds,
    SpeculationRules,
    SpeculationState,
    choose,
    draft_changed,
    expected_rest,
    expected_speedup,
    in_words,
    verified,
)
from tide_cli.engine.plugin.captured import OWN_REQUEST_PREFIXES
from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.engine.plugin.deferral import DeferredExtend
from tide_cli.engine.plugin.profile import Conditions, processor_name
from tide_cli.engine.plugin.ranks import agreed, number_handler
from tide_cli.engine.plugin.round_clock import RoundClock


class SpeculationControl:
    """What SGLang calls an AdaptiveSpecPolicy, and the counts behind it. For the scheduler's thread alone.

    clock, lag: of its RoundClock. deferred: holds back what the draft need not read while nothing is proposed.
    """

    def __init__(
        self,
        config: EngineConfig,
        conditions: Conditions,
        *,
        clock: Callable[[], float],
        lag: int,
        version: int,
        deferred: DeferredExtend | None = None,
    ) -> None:
        self.rules = SpeculationRules(most_steps=config.draft_steps, margin=config.speculation_margin)
        self._adaptive = config.adaptive
        self._max_running_requests = config.max_running_requests
        self.clock = RoundClock(clock, lag, config.draft_steps, config.profiles, conditions)
        self.deferred = deferred
        self._hold_plain = False
        self._graph_batches: list[int] | None = None
        self._version = version
        self._state = SpeculationState.initial(self.rules, config.draft_steps)
        # what the steps in force were chosen by, with the draft that is served now
        self._decided: tuple[SpeculationState, int, RoundSeconds] | None = None
        self._counts = Acceptance.none_yet(config.draft_steps)  # since the start, nothing forgotten
        self._rounds: Counter[int] = Counter()  # decode rounds by steps
        self._probes = 0
        self._batch = 1
        self._forced: int | None = None
        if self._adaptive:
            self.clock.load()

    # ------------------------------------------------------------ what SGLang's controller asks

    @property
    def candidate_steps(self) -> list[int]:
        return list(range(self.rules.most_steps + 1))

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        self._graph_batches = cuda_graph_bs

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        return self._graph_batches

    def get_steps_for_batch(self, batch_size: int) -> int:
        """At the start of every decode round."""
        self.clock.end_round()
        # clocks differ, and ranks with different shapes would wait for each other
        steps = agreed(self._next_steps(batch_size))
        if not self.clock.measuring:  # a measurement's own requests are no traffic
            self._batch = batch_size
            self._rounds[steps] += 1
        self.clock.begin_round(batch_size, steps)
        return steps

    def on_verify_complete(self, num_correct_drafts_per_req: list[int], batch_size: int) -> None:
        """Nothing: the number of steps that these belong to comes with the result (see after_result)."""

    # ------------------------------------------------------------ what TIDE's hooks tell

    def before_prefill(self, reqs) -> None:
        self.clock.interrupt()
        if self.deferred is not None:
            self.deferred.forget(reqs)

    def before_decode(self, reqs) -> None:
        self._hold_plain = self.deferred is not None and self.deferred.uneven(reqs)

    def catch_up(self, batch) -> None:
        """Before the draft proposes. What it has to read first belongs to the plain rounds before, not to this one."""
        if self.deferred is not None:
            self.clock.aside(lambda: self.deferred.catch_up(batch))

    def after_result(self, reqs, result, version: int) -> None:
        """Of a decode round. version: of the served draft."""
        self.serves(version)
        steps = (result.speculative_num_draft_tokens or 1) - 1
        correct = result.num_correct_drafts_per_req_cpu
        if self._adaptive:
            self._count_rounds(reqs, correct, steps)
        if steps and correct:
            accepted = [n for n, req in zip(correct, reqs, strict=True) if not req.rid.startswith(OWN_REQUEST_PREFIXES)]
            self._counts = self._counts.observe(accepted, steps, float("inf"))
            self._state = verified(self._state, self.rules, accepted, steps)

    def serves(self, version: int) -> None:
        """The served draft: another one's acceptance is not held against it."""
        if version != self._version:
            self._version = version
            self._state = draft_changed(self._state, self.rules)
            self._decided = None

    # ------------------------------------------------------------ what is asked for from outside

    def force(self, value: float) -> None:
        """So many steps from now on, whatever the policy says; a negative number: as it says."""
        self._forced = None if value < 0 else min(int(value), self.rules.most_steps)

    def update_handlers(self) -> dict[str, object]:
        """For `POST /set_internal_state`: tide_steps (see force) and tide_profile (see RoundClock.measure)."""
        fixed = None if self._adaptive else "the number of draft steps is fixed"
        return {
            "tide_steps": number_handler(self.force, fixed),
            "tide_profile": number_handler(self.clock.measure, fixed),
        }

    def state(self) -> dict[str, object]:
        """For /server_info."""
        rates = self._state.acceptance.rates(self.rules.prior)
        rounds = sum(self._rounds.values())
        steps = self._state.steps if self._forced is None else self._forced
        file = self.clock.file
        state: dict[str, object] = {
            "adaptive": self._adaptive,
            "max_running_requests": self._max_running_requests,
            "steps": steps,
            "reason": self._why(rates),
            "decided_from": self._decision(),
            "batch": self._batch,
            "speedup": None,
            "acceptance": [round(rate, 4) for rate in rates],
            "judged": list(self._counts.judged),
            "accepted": list(self._counts.accepted),
            "rounds": {str(steps): count for steps, count in sorted(self._rounds.items())},
            "probe_share": round(self._probes / rounds, 4) if rounds else 0.0,
            "measuring": self.clock.measuring,
            "profile": self.clock.profile.to_json() | {"file": file and str(file)} if self.clock.profile else None,
        }
        if (times := self.clock.times) is not None:
            if self._state.acceptance.known or not steps:
                state["speedup"] = round(expected_speedup(times, rates, self._batch, steps), 3)
            state["drift"] = round(times.drift, 3)
            state["now"] = [
                {
                    "batch": batch,
                    "seconds": [round(times.round_seconds(batch, steps), 6) for steps in self.candidate_steps],
                    "speedups": [round(expected_speedup(times, rates, batch, s), 3) for s in self.candidate_steps],
                }
                for batch in sorted({batch for batch, _ in times.cells})
            ]
        return state

    # ------------------------------------------------------------ inside

    def _next_steps(self, batch_size: int) -> int:
        if self._hold_plain:
            return 0
        if self._forced is not None:
            return self._forced
        if (measured := self.clock.steps_to_measure()) is not None:
            return measured
        if self.clock.times is None:
            return self.rules.most_steps
        costs = RoundSeconds(tuple(self.clock.times.round_seconds(batch_size, s) for s in self.candidate_steps))
        before = self._state
        self._state, decision = choose(before, self.rules, costs, batch_size)
        if decision.changed or self._decided is None:
            self._decided = before, batch_size, costs
        self._probes += decision.probing
        return decision.steps

    def _decision(self) -> dict[str, object] | None:
        """What the number of steps in force was chosen by; None where it was not chosen."""
        if self._decided is None or self._forced is not None:
            return None
        before, batch, costs = self._decided
        return decided_from(before, self.rules, batch=batch, seconds=list(costs.seconds))

    def _why(self, rates: list[float]) -> str:
        """The number of steps in force, explained."""
        if not self._adaptive:
            return "the number is fixed"
        if self._forced is not None:
            return "asked for"
        if self.clock.times is None:
            return "round times are not measured yet"
        if not self._state.acceptance.known:
            return "too few proposals of this draft were judged yet"
        return in_words(self.clock.times, rates, self._batch, self._state.steps, self.rules.margin)

    def _count_rounds(self, reqs, correct: list[int] | None, steps: int) -> None:
        """Notes on each request its rounds with proposals, and what was right in them.

        The acceptance length that drafts are judged by is that of the largest number of steps, as the gate's is: where
        all of fewer proposals were right, what the others would have brought is added as it is to be expected.
        """
        rest = expected_rest(self._state.acceptance.rates(self.rules.prior), steps) if steps else 0.0
        for i, req in enumerate(reqs):
            rounds, right = getattr(req, "tide_rounds", (0, 0.0))
            if steps and correct:
                rounds, right = rounds + 1, right + correct[i] + (rest if correct[i] == steps else 0.0)
            req.tide_rounds = (rounds, right)


def install(worker, config: EngineConfig, version: int) -> SpeculationControl:
    """The control of this worker, in place of SGLang's policy where the engine was started with its adaptive states."""
    on_cpu = not torch.cuda.is_available()
    control = SpeculationControl(
        config,
        _conditions(worker, config),
        clock=time.thread_time if on_cpu else time.perf_counter,
        lag=0 if on_cpu else 1,
        version=version,
        deferred=DeferredExtend(worker) if on_cpu and config.adaptive else None,
    )
    if config.adaptive:
        if worker.adaptive_controller is None:
            raise RuntimeError("tide: SGLang has switched --speculative-adaptive off; its log says why")
        worker.adaptive_controller.params = control
        logging.getLogger("sglang.srt.speculative.eagle_worker_v2").addFilter(_not_a_switch)
    return control


def _not_a_switch(record: logging.LogRecord) -> bool:
    """SGLang logs each switch of steps; a probe every few seconds would bury everything else."""
    return not str(record.msg).startswith("Switch adaptive runtime state")


def _conditions(worker, config: EngineConfig) -> Conditions:
    import sglang

    if torch.cuda.is_available():
        device = f"{torch.cuda.get_device_name()} x{get_parallel().tp_size}"
    else:
        device = f"{processor_name()} x{torch.get_num_threads()}"
    dtype = str(worker.target_worker.model_runner.dtype).removeprefix("torch.")
    return Conditions(config.target, device, dtype, sglang.__version__)
