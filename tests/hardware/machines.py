"""The examples in configs/inventories, the machines in inventories/, and small ones made up."""

from __future__ import annotations

from pathlib import Path

from tide_cli.hardware.examples import examples
from tide_cli.hardware.inventory import Gpu, Inventory, NumaNode
from tide_cli.hardware.inventory_file import read_inventory
from tide_cli.targets import TargetShape, known_targets

SHAPES: dict[str, TargetShape] = {name: known.shape for name, known in known_targets().items() if known.shape}
INVENTORIES = [*examples().values(), *sorted((Path(__file__).parent / "inventories").glob("*.json"))]


def machine(name: str) -> Inventory:
    """The example of that name, or inventories/<name>.json"""
    (file,) = (file for file in INVENTORIES if file.stem == name)
    return read_inventory(file.read_text())


def cpu(cores: int, gib: int = 64) -> Inventory:
    """One node, all of its memory free."""
    return Inventory((NumaNode(0, tuple(range(cores)), gib * 2**30, gib * 2**30),))


def with_gpus(count: int, gib: int = 80) -> Inventory:
    """Equal, idle GPUs beside 16 cores."""
    gpus = tuple(Gpu(index, "some GPU", gib * 2**30, (9, 0)) for index in range(count))
    return Inventory((NumaNode(0, tuple(range(16)), 2**38, 2**38),), gpus)
