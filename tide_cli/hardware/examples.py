"""Example inventories, one file each in configs/inventories: a plan needs neither a machine nor a file of one's own."""

from __future__ import annotations

from pathlib import Path

from tide_cli.targets.known import configs_folder

LARGE = "8xH100"  # every known target fits into it


def examples() -> dict[str, Path]:
    """The file of each example by its name, sorted."""
    return {file.stem: file for file in sorted((configs_folder() / "inventories").glob("*.json"))}


def inventory_file(named: Path) -> Path:
    """The file that --inventory names: itself, or where there is none, the example of that name in any case."""
    by_name = {name.casefold(): file for name, file in examples().items()}
    return named if named.exists() else by_name.get(str(named).casefold(), named)
