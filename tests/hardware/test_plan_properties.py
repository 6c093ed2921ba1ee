"""What holds for every plan of every machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import SHAPES, with_gpus

from tide_cli.errors import UsageError
from tide_cli.hardware.inventory import Gpu, Inventory, Link, NumaNode
from tide_cli.hardware.plan import Plan
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.wishes import Wishes

MAKES = [
    ("A100", (8, 0), "nvidia"),
    ("A6000", (8, 6), "nvidia"),
    ("H100", (9, 0), "nvidia"),
    ("MI", (9, 4, 2), "amd"),
    ("MI old", (9, 0, 10), "amd"),
]
STEP = 2**28

shapes = st.sampled_from(sorted(SHAPES)).map(SHAPES.__getitem__)


@st.composite
def inventories(draw: st.DrawFn, least: int = 0) -> Inventory:
    """Up to six GPUs of up to two makes of one maker, some of them busy, some joined, on one or two nodes."""
    maker = draw(st.sampled_from(("nvidia", "nvidia", "amd")))
    sized = st.tuples(st.sampled_from([make for make in MAKES if make[2] == maker]), st.integers(8, 200))
    makes = draw(st.lists(sized, min_size=1, max_size=2, unique_by=lambda make: make[0][0]))
    gpus = []
    for index in range(draw(st.integers(least, 6))):
        (name, capability, vendor), gib = draw(st.sampled_from(makes))
        used = draw(st.one_of(st.just(0), st.integers(0, gib * 2**30)))
        gpus.append(Gpu(index, name, gib * 2**30, capability, memory_used=used, vendor=vendor))
    pairs = [(a, b) for a in range(len(gpus)) for b in range(a)]
    links = tuple(Link(a, b, draw(st.sampled_from(("nvlink", "pcie", "system")))) for a, b in pairs)
    nodes = []
    for number in range(draw(st.integers(1, 2))):
        cores = tuple(range(8 * number, 8 * number + draw(st.integers(1, 8))))
        free = draw(st.integers(0, 2**37))
        nodes.append(NumaNode(number, cores, 2**37, free))
    return Inventory(tuple(nodes), tuple(gpus), links)


wishes = st.builds(
    Wishes,
    training=st.booleans(),
    speculation=st.booleans(),
    context_length=st.sampled_from((None, 1024, 32_768, 131_072)),
    requests=st.sampled_from((1, 8, 64)),
    total_tokens=st.sampled_from((None, None, 4096, 200_000)),
)


def planned(inventory: Inventory, *arguments: object) -> Plan | None:
    try:
        return make_plan(inventory, *arguments)
    except UsageError:
        return None


@given(inventories(), shapes, wishes)
@settings(max_examples=150)
def test_a_plan_never_takes_more_than_there_is(inventory: Inventory, shape, wish: Wishes) -> None:
    plan = planned(inventory, shape, wish)
    assume(plan is not None)
    by_index = {gpu.index: gpu for gpu in inventory.gpus}
    for device in plan.memory:
        there = inventory.memory_free if device.gpu is None else by_index[device.gpu].memory_free
        assert 0 <= device.planned <= there
        assert device.free == there - device.planned
    where = {device.gpu for device in plan.memory if any(part.owner == "engine" for part in device.parts)}
    assert where == (set(plan.serve.gpus) or {None})
    assert plan.max_total_tokens >= min(2048, wish.context_length or 2048) or wish.total_tokens
    assert plan.mem_fraction_static is None or 0 < plan.mem_fraction_static < 1


@given(inventories(), st.one_of(st.none(), shapes), wishes)
@settings(max_examples=150)
def test_sharing_and_going_without_is_said(inventory: Inventory, shape, wish: Wishes) -> None:
    plan = planned(inventory, shape, wish)
    assume(plan is not None)
    text = " ".join(plan.notes)
    assert ("share it" in text) == (plan.trainer == "shared")
    assert ("share core" in text) == bool(plan.train and set(plan.train.cores) & set(plan.serve.cores))
    assert ("trainer runs on the CPU" in text) == (plan.trainer == "cpu" and bool(plan.serve.gpus))
    trains = wish.training and wish.speculation
    assert ("adaptation is off" in text) == (trains and plan.train is None)
    assert trains or plan.train is None
    used = {*plan.serve.gpus, *(plan.train.gpus if plan.train else ())}
    idle = {gpu.index for gpu in inventory.gpus} - used if plan.serve.gpus else set()
    assert ("idle" in text) == bool(idle)


@given(inventories(), st.one_of(st.none(), shapes), wishes)
def test_every_core_is_used_and_none_invented(inventory: Inventory, shape, wish: Wishes) -> None:
    plan = planned(inventory, shape, wish)
    assume(plan is not None)
    parts = [plan.serve, *([plan.train] if plan.train else [])]
    assert {core for part in parts for core in part.cores} == set(inventory.cores)
    assert all(part.cores for part in parts)


@given(inventories(least=1), shapes, wishes, st.integers(1, 400), st.data())
@settings(max_examples=200, deadline=None)
def test_more_memory_never_makes_a_plan_worse(inventory: Inventory, shape, wish: Wishes, steps: int, data) -> None:
    """All GPUs get larger by the same, or one of them is given back by others, or main memory becomes free."""
    plan = planned(inventory, shape, wish)
    assume(plan is not None)
    place = data.draw(st.integers(-2, len(inventory.gpus) - 1))
    more = steps * STEP
    if place == -2:
        nodes = tuple(
            replace(node, memory=node.memory + more, memory_free=node.memory_free + more) for node in inventory.nodes
        )
        richer = replace(inventory, nodes=nodes)
    elif place == -1:
        richer = replace(inventory, gpus=tuple(replace(gpu, memory=gpu.memory + more) for gpu in inventory.gpus))
    else:
        gpus = list(inventory.gpus)
        gpus[place] = replace(gpus[place], memory_used=max(0, gpus[place].memory_used - more))
        richer = replace(inventory, gpus=tuple(gpus))
    better = planned(richer, shape, wish)
    assert better is not None
    assert better.max_total_tokens >= plan.max_total_tokens


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_growing_gpus(name: str, count: int) -> None:
    """GiB by GiB, through every change of layout and step."""
    tokens, layouts = 0, set()
    for gib in range(1, 240):
        plan = planned(with_gpus(count, gib), SHAPES[name], Wishes(context_length=16_384))
        assert plan is not None or tokens == 0
        if plan is not None:
            assert plan.max_total_tokens >= tokens
            tokens = plan.max_total_tokens
            layouts.add((plan.trainer, plan.tensor_parallel))
    # a few cores are enough for the embedded target's draft: it is trained there whatever the GPU has
    assert len(layouts) > 1 or count > 1 or name == "smollm2-135m"


@st.composite
def device_wishes(draw: st.DrawFn, inventory: Inventory) -> Wishes:
    numbers = [str(gpu.index) for gpu in inventory.gpus] + ["9"]
    some = st.one_of(st.none(), st.lists(st.sampled_from(numbers), min_size=1, unique=True).map(",".join))
    core = st.one_of(st.none(), st.sampled_from([str(core) for core in inventory.cores] + ["99"]))
    return Wishes(
        gpus=draw(st.one_of(some, st.just("cpu"))),
        serve_gpus=draw(some),
        train_gpus=draw(st.one_of(some, st.just("cpu"))),
        tp=draw(st.one_of(st.none(), st.integers(1, 6))),
        serve_cores=draw(core),
        train_cores=draw(core),
        total_tokens=draw(st.sampled_from((None, 4096, 100_000))),
    )


@given(inventories(), st.one_of(st.none(), shapes), st.data())
@settings(max_examples=200, deadline=None)
def test_every_wish_is_respected_or_refused(inventory: Inventory, shape, data) -> None:
    wish = data.draw(device_wishes(inventory))
    plan = planned(inventory, shape, wish)
    assume(plan is not None)
    allowed = {gpu.index for gpu in inventory.gpus}
    if wish.gpus == "cpu":
        allowed = set()
    elif wish.gpus:
        allowed = {int(number) for number in wish.gpus.split(",")}
    train = plan.train
    assert {*plan.serve.gpus, *(train.gpus if train else ())} <= allowed
    if wish.serve_gpus:
        assert plan.serve.gpus == tuple(int(number) for number in wish.serve_gpus.split(","))
    if wish.train_gpus == "cpu":
        assert train is None or train.gpus == ()
    elif wish.train_gpus:
        assert train is not None
        assert train.gpus == tuple(int(number) for number in wish.train_gpus.split(","))
    if wish.tp:
        assert plan.tensor_parallel == wish.tp
    if wish.serve_cores:
        assert plan.serve.cores == (int(wish.serve_cores),)
    if wish.train_cores:
        assert train is not None
        assert train.cores == (int(wish.train_cores),)
    if wish.total_tokens:
        assert plan.max_total_tokens == wish.total_tokens
