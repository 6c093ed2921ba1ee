"""The report of a measurement: its figures, and the machine, versions and load they were taken under."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tide_cli import __version__
from tide_cli.hardware.machine import take_inventory
from tide_cli.printable import many

_PACKAGES = ("torch", "sglang", "specforge", "transformers", "numpy", "lmdb")


def take_environment() -> dict[str, Any]:
    """Versions, hardware and load now. memory in bytes, load: of the last 1, 5 and 15 minutes, time: unix seconds."""
    inventory = take_inventory()
    return {
        "time": time.time(),
        "tide": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": len(inventory.cores),
        "memory": inventory.memory,
        "memory_free": inventory.memory_free,
        "gpus": [asdict(gpu) for gpu in inventory.gpus],
        "load": list(os.getloadavg()),
    }


def make_report(environment: dict[str, Any], **measured: Any) -> dict[str, Any]:
    """One JSON object: {"environment": taken before, with `load_after` added now, NAME: its figures, …}."""
    return {"environment": environment | {"load_after": list(os.getloadavg())}, **measured}


def busy_warning(environment: dict[str, Any]) -> str | None:
    """A line to say before measuring on a machine that does something else, too."""
    load, cores = environment["load"][0], environment["cores"]
    if load <= cores / 2:
        return None
    return f"this machine is busy (load {load:.1f} on {many(cores, 'core')}): expect scatter"


def filesystem_of(folder: Path) -> str:
    """The kind of file system a folder lies on, e.g. 'ext4'; '?' where that is unknown."""
    import psutil

    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in [folder, *folder.parents] if path in mounts), "?")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
