"""The machine as an appliance finds it: what processes of its own still hold on GPUs counts as free.

A killed appliance leaves them behind, and they are ended before the next one starts.
"""

from __future__ import annotations

from tide_cli.hardware.inventory import Inventory
from tide_cli.hardware.machine import take_inventory
from tide_cli.paths import Paths
from tide_cli.supervisor.leftovers import find_leftovers


def own_inventory(paths: Paths) -> Inventory:
    """The inventory of this machine for the appliance with these paths."""
    inventory = take_inventory()
    if not any(gpu.processes for gpu in inventory.gpus):
        return inventory
    return inventory.without({stat.pid for stat in find_leftovers(paths.state, paths.run / "children.json")})
