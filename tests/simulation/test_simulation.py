"""Runs as a whole: what must hold whatever the machine, and that the decisions are the product's own."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_runs import MACHINES

from tide_cli.adaptation.speculation import expected_length
from tide_cli.bench.replay import Arrival
from tide_cli.cli.simulate_view import pays
from tide_cli.hardware.plan import Partition, Plan
from tide_cli.settings import Settings
from tide_cli.simulation import learner
from tide_cli.simulation.acceptance import Learnable, effective_tokens, rate_of, walks
from tide_cli.simulation.answers import best, enough_size, payback, spool_needed, spool_sizes
from tide_cli.simulation.arrivals import Load
from tide_cli.simulation.compare import Simulated
from tide_cli.simulation.gpu_figures import GpuFigures
from tide_cli.simulation.loop import Run, Setup, simulate
from tide_cli.simulation.ring import Ring
from tide_cli.simulation.splits import Split
from tide_cli.simulation.trainer import CpuTrainer, GpuTrainer
from tide_cli.spool.layout import RowLayout
from tide_cli.targets import known_targets

SHAPE = known_targets()["smollm2-135m"].shape
assert SHAPE is not None
TRAINER = CpuTrainer(SHAPE, SHAPE.usual_draft, 3, 1)
LAYOUT = RowLayout(576, target="t")
LEARNABLE = Learnable(1.2, 1.8, 20_000, 150_000, 3)


def setup(**changes: Any) -> Setup:
    """The embedded target, four requests at a time, cycles as in the demo."""
    chosen = Settings(cycle_tokens=3000, cycle_seconds=60, speculation="on", **changes.pop("settings", {}))
    ring = Ring(LAYOUT, 2**28, chosen.max_sample_tokens, chosen.held_out_share)
    load = Load(concurrency=4, input_tokens=80, output_tokens=80)
    made = Setup(MACHINES["float32"], chosen, LEARNABLE, load, ring, 600.0, TRAINER)
    return replace(made, **changes)


def test_a_draft_is_trained_judged_and_served() -> None:
    run = simulate(setup())
    kinds = [event.kind for event in run.events]
    assert kinds[:2] == ["cycle", "gate"]
    assert kinds.index("published") < kinds.index("swap")
    assert run.swaps[0][1] == 1
    assert run.swaps[0][0] > 60  # a cycle takes its time
    assert (run.length(run.swaps[0][0] + 4) or 0) > (run.length() or 0)


def test_a_cycle_ends_when_its_tokens_are_used_up() -> None:
    taken = []
    for tokens in (None, 3500):
        run = simulate(setup(settings={"train_tokens": tokens}))
        began, judged = ([event.at for event in run.events if event.kind == kind] for kind in ("cycle", "gate"))
        taken.append(judged[0] - began[0])
        assert (0 < run.trained_tokens <= 3500 * len(began)) is (tokens is not None)
    assert taken[0] - taken[1] == pytest.approx(60 - 3500 / 560, abs=1)  # some 560 tokens are trained in a second


def test_nothing_is_decided_without_a_trainer() -> None:
    run = simulate(setup(trainer=None))
    assert (run.events, run.swaps, run.trained_tokens) == ([], [], 0.0)


def test_without_a_gain_to_learn_nothing_is_deployed_and_nothing_gained() -> None:
    same = replace(LEARNABLE, reachable=LEARNABLE.first)
    run, base = (simulate(setup(learnable=same, trainer=trainer)) for trainer in (TRAINER, None))
    assert run.swaps == []
    assert "gate" in {event.kind for event in run.events}
    assert run.tokens == base.tokens
    found = payback(run, base, closed=True)
    assert (found.gain, found.deficit, found.at) == (0.0, 0.0, 0.0)


@settings(max_examples=20, deadline=None)
@given(
    rate=st.floats(0.05, 3),
    slots=st.integers(1, 8),
    cache=st.integers(100, 2000),
    steps=st.sampled_from(["auto", "on", "off"]),
    seed=st.integers(0, 5),
)
def test_requests_and_tokens_are_neither_lost_nor_made(
    rate: float, slots: int, cache: int, steps: str, seed: int
) -> None:
    load = Load(rate=rate, input_tokens=80, output_tokens=80, requests=40)
    choices = {"speculation": steps, "max_running_requests": slots, "seed": seed}
    made = setup(load=load, cache_tokens=cache, duration=1e6, trainer=None)
    run = simulate(replace(made, settings=made.settings.model_copy(update=choices)))
    assert run.arrived == 40 == run.ended + run.refused
    assert run.in_system == 0
    assert run.tokens == pytest.approx(run.requested)
    assert run.tokens == pytest.approx(sum(one.ask.output_tokens for one in run.finished))
    assert all(one.at > one.arrived for one in run.finished)
    assert run.points[-1].request_seconds == pytest.approx(sum(one.at - one.arrived for one in run.finished))


def test_requests_under_way_are_counted() -> None:
    run = simulate(setup(load=Load(rate=10, input_tokens=80, output_tokens=80), duration=60.0, trainer=None))
    assert run.in_system > 0
    assert run.arrived == run.ended + run.in_system
    assert sum(one.ask.output_tokens for one in run.finished) <= run.tokens <= run.requested


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    one, same = (asdict(simulate(setup())) for _ in range(2))
    other = asdict(simulate(setup(settings={"seed": 1})))
    assert one == same
    assert one["points"] != other["points"]


def test_a_trace_is_served_in_its_own_time() -> None:
    trace = [Arrival(0.0, 5, 10), Arrival(100.0, 6, 20), Arrival(100.0, 7, None)]
    run = simulate(setup(load=Load(trace=trace, input_tokens=33), trainer=None))
    assert [(one.ask.input_tokens, one.ask.output_tokens, one.arrived) for one in run.finished] == [
        (10, 5, 0.0),
        (20, 6, 100.0),
        (33, 7, 100.0),
    ]
    assert 100 < run.seconds < 110
    faster = simulate(setup(load=Load(trace=trace, speed=2.0), trainer=None))
    assert faster.finished[1].arrived == 50.0


def test_a_trainer_that_shares_slows_the_engine_down_while_it_trains() -> None:
    alone, shared = (simulate(setup(share=share, duration=90.0)) for share in (0.0, 0.5))
    assert not alone.swaps
    assert shared.tokens < 0.75 * alone.tokens
    assert shared.trained_tokens == 0  # half as fast: the cycle is not over yet


def test_traffic_that_changes_is_noticed_and_learned() -> None:
    learnable = replace(LEARNABLE, reachable=2.6)
    run = simulate(setup(learnable=learnable, domains=2, shift=2500.0, duration=5000.0))
    drifts = [event.at for event in run.events if event.kind == "drift"]
    assert any(2500 < at < 3200 for at in drifts)
    assert run.swaps[-1][0] > 2500
    before, after = run.length(2400.0), run.length(4700.0)
    assert before is not None
    assert after is not None
    assert after > run.points[1260].length  # type: ignore[operator]  # soon after the change


def points(*tokens: float, waited: float = 0.0) -> Run:
    run = simulate(setup(duration=2.0, trainer=None))
    made = [
        replace(run.points[0], at=2.0 * at, tokens=count, request_seconds=waited) for at, count in enumerate(tokens)
    ]
    return replace(run, points=made)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ((0, 10, 20, 32, 44), "from its first draft"),
        ((0, 5, 21, 31, 45), "after 4 s, 21 tokens"),
        ((0, 5, 25, 36, 45), "after 4 s, 25 tokens; loses in the last quarter"),
        ((0, 10, 20, 30, 40), "nothing gained"),
        ((0, 5, 15, 25, 36), "after 16 s (projected)"),
        ((0, 5, 15, 20, 25), "not within the run"),
    ],
)
def test_what_pays_is_said_as_the_figures_have_it(tokens: tuple[float, ...], words: str) -> None:
    run, base = replace(points(*tokens), swaps=[(4.0, 1)]), points(0, 10, 20, 30, 40)
    split = Split(Plan(Partition((0,)), Partition((1,))), MACHINES["float32"], TRAINER, 0.0, True)
    assert pays(Simulated(split, run, payback(run, base, closed=True))) == words
    if words == "from its first draft":
        undecided = replace(run, swaps=[])
        assert pays(Simulated(split, undecided, payback(undecided, base, closed=True))) == "no draft yet"


def test_payback_is_when_it_is_never_behind_again() -> None:
    base = points(0, 10, 20, 30, 40)
    found = payback(points(0, 5, 21, 28, 45), base, closed=True)
    assert (found.deficit, found.at, found.tokens, found.gain) == (5, 8.0, 45, 5)
    late = payback(points(0, 2, 6, 12, 36), base, closed=True)
    assert (late.at, late.tokens) == (None, None)
    assert late.projected == pytest.approx(8 + 4 * 2 / 14)  # behind by 18 two seconds before, now by 4
    assert payback(points(0, 2, 6, 12, 20), base, closed=True).projected is None
    assert (late.late_gain, found.late_gain) == (7.0, 3.5)
    assert payback(base, base, closed=True).at == 0.0
    waiting = payback(points(0, 0, waited=7.0), points(0, 0, waited=5.0), closed=False)
    assert (waiting.unit, waiting.deficit, waiting.at) == ("request_seconds", 2.0, None)
    assert best([points(0, 3), points(0, 4), points(0, 4)], closed=True) == 1


def test_the_spool_that_is_enough_is_so() -> None:
    run = simulate(setup())
    chosen = setup().settings
    size = enough_size(run, LAYOUT, chosen)
    assert size is not None
    small, large = spool_sizes(run, LAYOUT, chosen, [size // 2, size * 2])
    assert not small.enough
    assert large.enough
    assert small.oldest < large.oldest
    assert small.tokens < large.tokens
    assert spool_needed(chosen) == 320  # 256 for training are four fifths of them; 48 for the gate a fifth of 240
    unstored = simulate(setup(settings={"capture_sample_rate": 0.0}))
    assert enough_size(unstored, LAYOUT, chosen) is None
    assert spool_sizes(unstored, LAYOUT, chosen) == []


@given(drawn=st.floats(0, 1e7), distinct=st.floats(1, 1e6), more=st.floats(0, 1e6))
def test_repeated_tokens_are_worth_less_than_new_ones(drawn: float, distinct: float, more: float) -> None:
    worth = effective_tokens(drawn, distinct)
    assert worth <= drawn
    assert worth <= effective_tokens(drawn, distinct + more) * (1 + 1e-9)
    assert worth <= effective_tokens(drawn + more, distinct) * (1 + 1e-9)
    assert worth <= distinct * 17


@given(tokens=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_training_on_a_domain_never_makes_it_worse_and_on_another_never_better(tokens: float, more: float) -> None:
    knows = LEARNABLE.trained({}, {0: tokens}, {0: tokens})
    better = LEARNABLE.trained(knows, {0: more}, {0: more})
    assert LEARNABLE.first <= LEARNABLE.length(knows, 0) <= LEARNABLE.length(better, 0) <= LEARNABLE.reachable
    forgotten = LEARNABLE.trained(knows, {1: more}, {1: more})
    assert LEARNABLE.length(forgotten, 0) <= LEARNABLE.length(knows, 0)


@given(length=st.floats(1, 3.8))
def test_a_length_and_its_rate(length: float) -> None:
    assert expected_length([rate_of(length, 3)] * 3) == pytest.approx(length, abs=1e-6)


def test_walks_have_the_length_of_their_rate() -> None:
    rates = [(rate_of(2.0, 3), rate_of(1.5, 3))] * 400
    candidate, served = walks(np.random.default_rng(0), rates, [200] * 400, 3)
    for walked, length in ((candidate, 2.0), (served, 1.5)):
        assert sum(one.tokens for one in walked) / sum(one.rounds for one in walked) == pytest.approx(length, rel=0.05)


@given(bandwidth=st.floats(1e11, 1e13), flops=st.floats(1e13, 1e16), factor=st.floats(1, 10))
def test_a_faster_gpu_trains_no_slower(bandwidth: float, flops: float, factor: float) -> None:
    assert SHAPE is not None
    slow, fast = (
        GpuTrainer(SHAPE, SHAPE.usual_draft, 3, GpuFigures(bandwidth * by, flops * by)) for by in (1.0, factor)
    )
    assert slow.tokens_per_second(512, 0.5) <= fast.tokens_per_second(512, 0.5)
    assert slow.walk_seconds(100) >= fast.walk_seconds(100)


def test_several_gpus_train_faster_where_they_are_joined_well() -> None:
    """gpt-oss-120b's draft of 305.8 M weights, a step of 30.3 ms on an H100: 4 * 305.8 / 2 MB are 4.1 ms over NVLink
    and 30.6 ms over PCI Express."""
    shape = known_targets()["gpt-oss-120b"].shape
    h100 = GpuFigures(3.35e12, 989.5e12)
    one, nvlink, pcie = (
        GpuTrainer(shape, shape.usual_draft, 3, h100, *more).tokens_per_second(512, 0.5)
        for more in ((), (2, True), (2, False))
    )
    assert nvlink / one == pytest.approx(2 * 30.3 / (30.3 + 4.1), rel=0.01)
    assert pcie / one == pytest.approx(2 * 30.3 / (30.3 + 30.6), rel=0.01)


def test_recorded_training_rates_are_met() -> None:
    """Cycles of 60 s trained 37,374 to 46,618 tokens, 49 % of them generated, on one core."""
    assert 37_374 <= 60 * TRAINER.tokens_per_second(512, 0.49) <= 46_618


def test_constants_are_those_of_the_trainer() -> None:
    pytest.importorskip("specforge")
    from tide_cli.adaptation import pool
    from tide_cli.training import judge, material

    assert (learner.NEWEST, learner.POOL, learner.POOL_SAMPLES) == (material._NEWEST, pool._FEWEST, judge._NEWEST)


def test_old_samples_are_as_many_as_the_reservoir_has_room_for() -> None:
    for chosen, tokens in ((None, 2**28 / 8 / 4620), (4620 * 100, 100.0)):  # a token takes 8 * 576 + 12 bytes
        made = setup(settings={"reservoir_size": chosen})
        student = learner.Learner(
            made.settings, LEARNABLE, TRAINER, made.ring, speed=1.0, chance=np.random.default_rng(0)
        )
        student._offered = {0: 300_000, 1: 100_000}
        assert student._old_tokens() == pytest.approx({0: 0.75 * tokens, 1: 0.25 * tokens}, rel=1e-3)
        student._offered = {0: 60}
        assert student._old_tokens() == {0: 60}


def test_a_point_has_no_length_where_nothing_was_decoded() -> None:
    run = simulate(setup(load=Load(trace=[Arrival(0.0, 2, 2), Arrival(30.0, 2, 2)]), trainer=None))
    idle = [point for point in run.points if 10 < point.at < 30]
    assert {point.length for point in idle} == {None}
    assert not math.isnan(run.rate())
