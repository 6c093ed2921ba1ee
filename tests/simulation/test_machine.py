"""Round times: what must hold of any machine, and how far published figures are met."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import MACHINES, RECORDED

from tide_cli.engine.plugin.profile import Profile
from tide_cli.errors import TideError, UsageError
from tide_cli.hardware.inventory import Gpu, Inventory, Link, NumaNode
from tide_cli.simulation.gpu_figures import GpuFigures, gpu_figures
from tide_cli.simulation.machine import Measured, Roofline, joined_fast
from tide_cli.targets import known_targets

SHAPES = {name: known.shape for name, known in known_targets().items() if known.shape}
figures = st.builds(GpuFigures, st.floats(1e11, 2e13), st.floats(1e13, 5e15))


def roofline(target: str, gpu: GpuFigures, tp: int = 1, fast: bool = True) -> Roofline:
    return Roofline(SHAPES[target], SHAPES[target].usual_draft, gpu, tp, fast)


def named(name: str) -> GpuFigures:
    return gpu_figures(Gpu(0, name, 2**36))


@given(
    target=st.sampled_from(sorted(SHAPES)),
    gpu=figures,
    factor=st.floats(1, 10),
    batch=st.integers(1, 256),
    steps=st.integers(0, 8),
    context=st.floats(0, 1e5),
)
def test_a_faster_memory_or_more_arithmetic_never_makes_it_slower(
    target: str, gpu: GpuFigures, factor: float, batch: int, steps: int, context: float
) -> None:
    slow = roofline(target, gpu)
    for better in (
        GpuFigures(gpu.bandwidth * factor, gpu.flops),
        GpuFigures(gpu.bandwidth, gpu.flops * factor),
    ):
        fast = roofline(target, better)
        assert fast.round_seconds(batch, steps, context) <= slow.round_seconds(batch, steps, context)
        assert fast.prefill_seconds(batch) <= slow.prefill_seconds(batch)


@given(
    target=st.sampled_from(sorted(SHAPES)),
    gpu=figures,
    batch=st.integers(1, 256),
    steps=st.integers(0, 7),
    context=st.floats(0, 1e5),
)
def test_more_work_is_never_faster(target: str, gpu: GpuFigures, batch: int, steps: int, context: float) -> None:
    machine = roofline(target, gpu)
    seconds = machine.round_seconds(batch, steps, context)
    assert seconds <= machine.round_seconds(batch + 1, steps, context)
    assert seconds <= machine.round_seconds(batch, steps + 1, context)
    assert seconds <= machine.round_seconds(batch, steps, context + 1)
    assert machine.weight_bytes_read(batch) <= machine.weight_bytes_read(batch + 1)


@pytest.mark.parametrize("target", sorted(SHAPES))
def test_no_pass_reads_more_weights_than_there_are(target: str) -> None:
    machine, shape = roofline(target, named("H100")), SHAPES[target]
    everything = machine.weight_bytes_read(10_000)
    embedding = 2 * shape.vocab_size * shape.hidden_size
    assert everything <= shape.weight_bytes
    assert everything >= 0.99 * (shape.weight_bytes - embedding)


def test_one_token_wakes_only_its_own_experts() -> None:
    """gpt-oss-120b: 4 of 128 experts of 3·2880² weights of 4.25 bits in 36 layers, 26.5M weights of attention a layer
    and a head of 201088·2880, both bfloat16."""
    experts = 36 * 4 * 3 * 2880**2 * 4.25 / 8
    rest = 2 * (36 * 2 * 2880 * (64 + 8) * 64 + 201088 * 2880)
    assert roofline("gpt-oss-120b", named("H100")).weight_bytes_read(1) == pytest.approx(experts + rest, rel=0.01)


# Published output tokens/s of one request without speculation, and how far the formula is off. Sources: LMSYS,
# "SGLang for gpt-oss" (2025-08-27): H100 at tensor parallel 8 and B200 at 4, MXFP4; SGLang's documentation of
# speculative decoding, performance highlights; Millstone AI's report on gpt-oss-20b (2026-01-28, vLLM, 1k context).
PUBLISHED = (
    ("gpt-oss-120b", "NVIDIA H100 80GB HBM3", 8, 318.53, 0.02),
    ("gpt-oss-120b", "NVIDIA B200", 4, 416.02, -0.21),
    ("llama-3.1-8b-instruct", "NVIDIA H100 80GB HBM3", 1, 158.34, 0.07),
    ("gpt-oss-20b", "NVIDIA RTX PRO 6000 Blackwell", 1, 250.0, 0.03),
)


@pytest.mark.parametrize(("target", "gpu", "tp", "published", "error"), PUBLISHED)
def test_published_rates_are_met_as_far_as_the_docs_say(
    target: str, gpu: str, tp: int, published: float, error: float
) -> None:
    rate = 1 / roofline(target, named(gpu), tp).round_seconds(1, 0, 1000)
    assert rate / published - 1 == pytest.approx(error, abs=0.02)


def test_the_published_gain_of_a_draft_lies_between_the_lengths_that_are_reported_for_it() -> None:
    """1.39 times plain decoding with 3 draft steps on H200 at tensor parallel 4 (LMSYS, the same post); its acceptance
    length is reported as 1.9 to 2.2 on other traffic."""
    machine = roofline("gpt-oss-120b", named("NVIDIA H200"), 4)
    gain = machine.round_seconds(1, 0, 1000) / machine.round_seconds(1, 3, 1000)
    assert 1.9 * gain < 1.39 < 2.2 * gain


def test_a_gpu_that_no_sheet_is_known_for_is_refused() -> None:
    with pytest.raises(UsageError, match="'Voodoo 2'"):
        named("Voodoo 2")
    with pytest.raises(UsageError, match="slice"):
        gpu_figures(Gpu(0, "NVIDIA H100", 2**35, uuid="MIG-1", mig=True, parent=7))


def test_a_link_is_slow_where_one_pair_is() -> None:
    gpus = tuple(Gpu(index, "NVIDIA H100", 2**36) for index in range(3))
    links = tuple(Link(*pair, "nvlink") for pair in ((0, 1), (0, 2)))
    machine = Inventory((NumaNode(0, (0,), 1, 1),), gpus, links)
    assert joined_fast(gpus[:1], machine)
    assert joined_fast(gpus[:2], machine)
    assert not joined_fast(gpus, machine)
    fast, slow = (roofline("gpt-oss-120b", named("H100"), 2, fast) for fast in (True, False))
    assert fast.round_seconds(8, 3) < slow.round_seconds(8, 3)


def test_measured_rounds_are_taken_as_they_are() -> None:
    rows = {(row["batch"], row["steps"]): row["seconds"] for row in RECORDED["profiles"]["float32"]["rounds"]}
    machine = MACHINES["float32"]
    assert all(machine.round_seconds(*cell) == seconds for cell, seconds in rows.items())
    assert machine.prefill_seconds(0) == 0.0
    assert 0 < machine.prefill_seconds(1) < machine.prefill_seconds(100)


def test_a_profile_without_its_parts_is_refused() -> None:
    profile = Profile.from_json(RECORDED["profiles"]["float32"])
    with pytest.raises(TideError, match="the target's passes"):
        Measured.of(Profile(profile.conditions, 0.0, profile.cells, {}))
