"""The findings of `tide doctor`, one after the other, the slow one last."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tide_cli.engine.launch import cpu_environment
from tide_cli.errors import TideError
from tide_cli.file_locks import is_locked
from tide_cli.hardware.cores import format_cores
from tide_cli.hardware.inventory import Inventory
from tide_cli.hardware.plan_settings import plan_for
from tide_cli.paths import Paths
from tide_cli.printable import many, size_words
from tide_cli.settings import Settings
from tide_cli.spool.folder import ring_size
from tide_cli.supervisor.leftovers import find_leftovers
from tide_cli.supervisor.lock import read_holder
from tide_cli.supervisor.own_machine import own_inventory
from tide_cli.supervisor.ports import check_port
from tide_cli.supervisor.status import reachable
from tide_cli.supervisor.values import check_values

_PACKAGES = ("torch", "sglang", "specforge", "transformers")
_PYTHON = ((3, 11), (3, 14))  # from the first, below the second
_LEAST_MEMORY = 4 * 2**30
_LEAST_DISK = 4 * 2**30
_SELFCHECK_TIMEOUT = 300.0  # seconds; importing SGLang from a cold disk is slow


@dataclass(frozen=True)
class Finding:
    """name: one word; text: what was found; remedy: the next step where ok is False."""

    name: str
    ok: bool
    text: str
    remedy: str | None = None


def check_up(settings: Settings) -> Iterator[Finding]:
    """Look at everything; a finding is yielded as soon as it is known."""
    paths = settings.paths
    inventory = own_inventory(paths)
    yield _python()
    packages = [_package(name) for name in _PACKAGES]
    yield from packages
    yield from _devices(settings, inventory)
    yield _amount("memory", inventory.memory_free, _LEAST_MEMORY, "end other programs")
    yield _disk(paths)
    running = is_locked(paths.lock)
    yield _port(settings, running)
    yield _leftovers(paths, running)
    yield _capture(settings, running)
    if all(package.ok for package in packages):
        yield _hooks(bool(inventory.gpus), paths)


def _python() -> Finding:
    first, below = _PYTHON
    version = ".".join(map(str, sys.version_info[:3]))
    good = first <= sys.version_info[:2] < below
    remedy = None if good else f"./install.sh with Python {first[0]}.{first[1]} or newer, below {below[0]}.{below[1]}"
    return Finding("python", good, f"{version} at {sys.executable}", remedy)


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", "./install.sh")


def _devices(settings: Settings, inventory: Inventory) -> Iterator[Finding]:
    cores = f"{many(len(inventory.cores), 'CPU core')} ({format_cores(inventory.cores)})"
    gpus = ", ".join(f"GPU {gpu.index} {gpu.name} {gpu.memory / 2**30:.0f} GiB" for gpu in inventory.gpus)
    yield Finding("devices", True, "; ".join([cores, gpus or "no GPU", *inventory.limits]))
    try:
        plan = plan_for(settings, check_values(settings), inventory)
    except TideError as error:
        yield _from_error("plan", error)
        return
    parts = [("serves", plan.serve), *([("trains", plan.train)] if plan.train else [])]
    words = [
        f"{f'GPU {format_cores(part.gpus)}' if part.gpus else f'core {format_cores(part.cores)}'} {verb}"
        for verb, part in parts
    ]
    yield Finding("plan", True, "; ".join([*words, *plan.notes]))


def _amount(name: str, free: int, least: int, remedy: str) -> Finding:
    good = free >= least
    needed = "" if good else f", {size_words(least)} are needed"
    return Finding(name, good, f"{size_words(free)} free{needed}", None if good else remedy)


def _disk(paths: Paths) -> Finding:
    folder = paths.state
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return Finding("disk", False, f"{folder} is not writable", "pass --state-dir with a folder you can write to")
    return _amount("disk", shutil.disk_usage(folder).free, _LEAST_DISK, f"free some space under {folder}")


def _port(settings: Settings, running: bool) -> Finding:
    holder = read_holder(settings.paths.lock)
    if running and holder.get("port") == settings.port:
        return Finding("port", True, f"{settings.port} serves the running appliance (pid {holder.get('pid')})")
    try:
        check_port(settings.host, settings.port)
    except TideError as error:
        return _from_error("port", error)
    return Finding("port", True, f"{settings.port} on {settings.host} is free")


def _leftovers(paths: Paths, running: bool) -> Finding:
    if running:
        return Finding("leftovers", True, "an appliance is running")
    found = find_leftovers(paths.state, paths.run / "children.json")
    if not found:
        return Finding("leftovers", True, "none")
    pids = ", ".join(str(stat.pid) for stat in found)
    return Finding("leftovers", False, f"processes of a killed appliance: pid {pids}", "`tide down` ends them")


def _capture(settings: Settings, running: bool) -> Finding:
    """Whether the running engine stores its traffic; without one, whether a spool is there and in order."""
    holder = read_holder(settings.paths.lock)
    try:
        size = ring_size(settings.paths.spool)
        states = _engine_states(holder) if running and "port" in holder else []
    except TideError as error:
        return _from_error("capture", error)
    captures = [state["capture"] for state in states if state.get("capture")]
    if failures := [capture["failure"] for capture in captures if "failure" in capture]:
        return Finding("capture", False, f"stopped: {failures[0]}", "mend that, then `tide down` and `tide up`")
    spool = "no spool yet" if size is None else f"a spool of {size_words(size)}"
    stored = f", {many(captures[0]['samples'], 'sample')} stored so far" if captures else ""
    return Finding("capture", True, spool + stored)


def _engine_states(holder: dict[str, Any]) -> list[dict[str, Any]]:
    from tide_cli.engine.client import EngineClient

    client = EngineClient(reachable(holder["host"]), holder["port"], timeout=5.0)
    try:
        return client.tide_states()
    except httpx.HTTPError:  # still starting, or busy: the port's finding says more
        return []
    finally:
        client.close()


def _hooks(on_gpu: bool, paths: Paths) -> Finding:
    environment = {"SGLANG_CACHE_DIR": str(paths.kernels), **os.environ}  # importing SGLang makes a folder there
    if not on_gpu:
        environment |= cpu_environment()
    command = [sys.executable, "-m", "tide_cli.engine.selfcheck"]
    try:
        check = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SELFCHECK_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return Finding(
            "hooks", False, f"no answer within {_SELFCHECK_TIMEOUT:.0f} s", "try again; " + " ".join(command)
        )
    lines = [line for line in (check.stdout or check.stderr).splitlines() if line.strip()]
    if check.returncode == 0:
        return Finding("hooks", True, lines[-1] if lines else "as expected")
    return Finding("hooks", False, "; ".join(lines[-4:]) or f"exit code {check.returncode}", "./install.sh")


def _from_error(name: str, error: TideError) -> Finding:
    first, *rest = error.lines()
    return Finding(name, False, first, rest[0] if rest else None)
