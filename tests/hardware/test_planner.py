from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.errors import UsageError
from tide_cli.hardware.inventory import Gpu, Inventory, _visible, take_inventory
from tide_cli.hardware.partition import partition_environment
from tide_cli.hardware.planner import Partition, format_cores, make_plan, parse_cores


def machine(cores: int, gpus: int = 0) -> Inventory:
    return Inventory(tuple(range(cores)), 2**34, 2**33, tuple(Gpu(i, "gpu", 2**36) for i in range(gpus)))


@pytest.mark.parametrize(
    ("cores", "serve", "train"),
    [(1, (0,), (0,)), (2, (0,), (1,)), (3, (0, 1), (2,)), (8, (0, 1, 2, 3), (4, 5, 6, 7))],
)
def test_a_cpu_is_halved(cores: int, serve: tuple[int, ...], train: tuple[int, ...]) -> None:
    plan = make_plan(machine(cores))
    assert (plan.serve.cores, plan.train.cores) == (serve, train)
    assert plan.serve.device == plan.train.device == "cpu"
    assert bool(plan.notes) == (cores == 1)


@pytest.mark.parametrize(
    ("gpus", "serve", "train"),
    [(1, (0,), (0,)), (2, (0,), (1,)), (3, (0, 1), (2,)), (4, (0, 1), (3,)), (8, (0, 1, 2, 3), (7,))],
)
def test_the_last_gpu_trains(gpus: int, serve: tuple[int, ...], train: tuple[int, ...]) -> None:
    plan = make_plan(machine(16, gpus))
    assert (plan.serve.gpus, plan.train.gpus) == (serve, train)
    assert plan.tensor_parallel == len(serve)


def test_a_shared_or_idle_gpu_is_said() -> None:
    assert "share" in make_plan(machine(4, 1)).notes[0]
    assert "GPU 2 stays idle" in make_plan(machine(4, 4)).notes[0]


def test_without_training_everything_serves() -> None:
    plan = make_plan(machine(4, 4), training=False)
    assert plan.train is None
    assert plan.serve == Partition((0, 1, 2, 3), (0, 1, 2, 3))


def test_named_cores_win_and_the_rest_goes_to_the_other() -> None:
    assert make_plan(machine(4), serve_cores="1-3").train.cores == (0,)
    assert make_plan(machine(4), train_cores="0").serve.cores == (1, 2, 3)
    both = make_plan(machine(4), serve_cores="0-2", train_cores="2")
    assert "share core 2" in both.notes[0]


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "0-9999999", "9"])
def test_wrong_cores_are_the_users_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="serve_cores"):
        make_plan(machine(4), serve_cores=text)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_cores_survive_writing_and_reading(cores: set[int]) -> None:
    assert parse_cores(format_cores(cores)) == tuple(sorted(cores))


@given(st.integers(1, 300), st.integers(0, 16), st.booleans())
def test_every_plan_uses_what_is_there(cores: int, gpus: int, training: bool) -> None:
    inventory = machine(cores, gpus)
    plan = make_plan(inventory, training=training)
    parts = [plan.serve, *([plan.train] if plan.train else [])]
    assert {core for part in parts for core in part.cores} == set(inventory.cores)
    assert all(part.cores and set(part.gpus) <= {gpu.index for gpu in inventory.gpus} for part in parts)
    assert plan.tensor_parallel & (plan.tensor_parallel - 1) == 0


def test_a_gpu_mask_is_read_as_cuda_reads_it() -> None:
    gpus = machine(1, 4).gpus
    assert [gpu.index for gpu in _visible(gpus, "2,0")] == [2, 0]
    assert [gpu.index for gpu in _visible(gpus, "1,-1,2")] == [1]
    assert _visible(gpus, "") == ()
    assert _visible(gpus, None) == gpus


def test_the_inventory_of_this_machine() -> None:
    inventory = take_inventory()
    assert inventory.cores
    assert 0 < inventory.memory_free <= inventory.memory


def test_environment_of_a_partition() -> None:
    environment = partition_environment(Partition((1, 2), (3,)), {"MALLOC_ARENA_MAX": "7"})
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert "MALLOC_ARENA_MAX" not in environment
    assert int(environment["MALLOC_TOP_PAD_"]) >= 2**20
