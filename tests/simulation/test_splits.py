"""Which splits of a machine are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tide_cli.errors import UsageError
from tide_cli.hardware.examples import examples
from tide_cli.hardware.inventory_file import read_inventory
from tide_cli.hardware.wishes import Wishes
from tide_cli.simulation.gpu_figures import GpuFigures
from tide_cli.simulation.machine import Machine, Roofline
from tide_cli.simulation.splits import Division, Split, splits
from tide_cli.simulation.trainer import CpuTrainer, GpuTrainer
from tide_cli.targets import known_targets

FILES = [*examples().values(), *(Path(__file__).parents[1] / "hardware" / "inventories").glob("*.json")]


def division(machine: str, figures: GpuFigures | None = None, **wishes: Any) -> Division:
    shape = known_targets()["gpt-oss-120b"].shape
    assert shape is not None
    (inventory,) = (read_inventory(file.read_text()) for file in FILES if file.stem == machine)
    return Division(inventory, shape, Wishes(**wishes), name="gpt-oss-120b", figures=figures)


def fastest(machine: Machine) -> float:
    return 1 / machine.round_seconds(8, 0, 1000)


def compared(machine: str, **wishes: Any) -> list[tuple[str, str, str | None]]:
    return [(one.kind, one.serves, one.trains) for one in splits(division(machine, **wishes), fastest)]


def test_the_best_of_each_kind_is_compared_with_the_planners_own() -> None:
    assert compared("8xH100") == [
        ("cpu", "GPU 0-7", "core 56-111"),
        ("off", "GPU 0-7", None),
        ("own", "GPU 0-3", "GPU 7"),
        ("shared", "GPU 0-7", "GPU 7"),
    ]


def test_what_the_user_asked_for_is_in_every_split() -> None:
    assert {serves for _, serves, _ in compared("8xH100", tp=2)} == {"GPU 0-1"}
    assert compared("8xH100", serve_gpus="4-7", train_gpus="0") == [
        ("own", "GPU 4-7", "GPU 0"),
        ("off", "GPU 4-7", None),
    ]
    assert compared("8xH100", training=False) == [("off", "GPU 0-7", None)]


@pytest.mark.parametrize("machine", ["8xH100", "1xH200", "4xMI300X-4xMI250", "2xRTX-6000-Ada"])
def test_the_options_of_a_split_make_the_planner_choose_it(machine: str) -> None:
    asked = division(machine)
    planned, *others = splits(asked, fastest)
    assert planned.options == ()
    for one in others:
        words = [word for word in one.options if word != "--no-training"]
        wishes: dict[str, Any] = {"training": len(words) == len(one.options)}
        for flag, value in zip(words[::2], words[1::2], strict=True):
            wishes[flag.removeprefix("--").replace("-", "_")] = int(value) if flag == "--tp" else value
        (chosen, *_) = splits(division(machine, **wishes), fastest)
        assert one.options
        assert (chosen.plan.serve, chosen.plan.train) == (one.plan.serve, one.plan.train)


def by_kind(machine: str) -> dict[str, Split]:
    return {one.kind: one for one in splits(division(machine), fastest)}


def test_each_split_has_its_own_machine_and_trainer() -> None:
    found = by_kind("4xMI300X-4xMI250")
    own, cpu, shared = (found[kind].trainer for kind in ("own", "cpu", "shared"))
    assert isinstance(own, GpuTrainer)
    assert isinstance(shared, GpuTrainer)
    assert isinstance(cpu, CpuTrainer)
    assert own.gpu.bandwidth < shared.gpu.bandwidth  # an MI250 against the MI300X that serve
    assert cpu.cores == 32
    assert found["off"].trainer is None
    assert (found["own"].share, found["shared"].share) == (0.0, 0.5)
    machine = found["own"].machine
    assert isinstance(machine, Roofline)
    assert (machine.tp, machine.fast_links, machine.gpu.bandwidth) == (4, True, 5.3e12)


def test_a_gpu_without_a_data_sheet_needs_figures() -> None:
    with pytest.raises(UsageError, match="slice"):
        splits(Division(**{**vars(division("h100-mig-2x40")), "target": known_targets()["gpt-oss-20b"].shape}), fastest)
    given = division("1xH200", figures=GpuFigures(1e12, 1e14))
    machine = splits(given, fastest)[0].machine
    assert isinstance(machine, Roofline)
    assert machine.gpu == GpuFigures(1e12, 1e14)
