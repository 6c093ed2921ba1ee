"""What the control groups of this process leave it of memory and of processor time, as containers set it.

Both hierarchies are read, version 2 (memory.max, cpu.max) and version 1 (memory.limit_in_bytes, cpu.cfs_quota_us); a
limit of any group above counts as well. Files are only read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tide_cli.hardware.inventory import NumaNode
from tide_cli.printable import many

_GIB = 2**30
# Of a group's memory, what the kernel gives back when it is wanted: names in memory.stat of version 2 and of version 1.
_RECLAIMABLE = {
    2: ("active_file", "inactive_file", "slab_reclaimable"),
    1: ("total_active_file", "total_inactive_file"),
}
_MEMORY_FILES = {2: ("memory.max", "memory.current"), 1: ("memory.limit_in_bytes", "memory.usage_in_bytes")}


@dataclass(frozen=True)
class Limits:
    """memory: bytes this process's groups may hold, memory_free: what is left of them; cores: processor time.

    None where no group sets a limit. cores is a number of whole cores' time, such as 1.5.
    """

    memory: int | None = None
    memory_free: int | None = None
    cores: float | None = None


def read_limits(process: Path = Path("/proc/self"), root: Path = Path("/")) -> Limits:
    """The limits of a process, by its folder in /proc; root: where the mount points of that process lie."""
    limits = Limits()
    for version, folder in _groups(process, root, "memory"):
        limits = _with_memory(limits, version, folder)
    for version, folder in _groups(process, root, "cpu"):
        cores = _cores(version, folder)
        if cores is not None and (limits.cores is None or cores < limits.cores):
            limits = replace(limits, cores=cores)
    return limits


def limited(nodes: Sequence[NumaNode], limits: Limits) -> tuple[tuple[NumaNode, ...], tuple[str, ...]]:
    """The nodes within the limits, and in words which of them apply.

    Memory is taken from the nodes in proportion. Of the cores as many stay as there is time for, at least one: more
    threads than that would wait for each other whenever the time is used up.
    """
    words = []
    total, free = sum(node.memory for node in nodes), sum(node.memory_free for node in nodes)
    if limits.memory is not None and limits.memory < total:
        words.append(f"{limits.memory / _GIB:.1f} of the machine's {total / _GIB:.1f} GiB of memory")
        nodes = _shared_out(nodes, limits.memory, "memory")
    if limits.memory_free is not None and limits.memory_free < free:
        nodes = _shared_out(nodes, limits.memory_free, "memory_free")
    cores = [core for node in nodes for core in node.cores]
    if limits.cores is not None and limits.cores < len(cores):
        words.append(f"the time of {limits.cores:.3g} of {many(len(cores), 'core')}")
        kept = set(cores[: max(1, math.floor(limits.cores))])
        nodes = [replace(node, cores=tuple(core for core in node.cores if core in kept)) for node in nodes]
    # the two figures are not of the same moment
    nodes = [replace(node, memory_free=min(node.memory_free, node.memory)) for node in nodes]
    return tuple(nodes), tuple(f"a control group, as of a container, leaves {each}" for each in words)


def _shared_out(nodes: Sequence[NumaNode], size: int, name: str) -> list[NumaNode]:
    total = sum(getattr(node, name) for node in nodes)
    return [replace(node, **{name: getattr(node, name) * size // total}) for node in nodes]


def _groups(process: Path, root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """(version, folder) of the groups that `controller` counts the process in, the innermost first."""
    own = _own_groups(process, controller)
    for version, top, mount in _mounts(process, controller):
        path = own.get(version)
        if path is None:
            continue
        base = root / mount.lstrip("/")
        # what is mounted may be a group itself; where the process's is not below it, it is the one that counts
        below = f"{path}/".startswith(f"{top.rstrip('/')}/") and ".." not in path
        inside = path.removeprefix(top.rstrip("/")) if below else ""
        folder = base / inside.lstrip("/")
        yield from ((version, each) for each in (folder, *folder.parents) if each == base or base in each.parents)


def _own_groups(process: Path, controller: str) -> dict[int, str]:
    """Version to the path of the process's group."""
    found = {}
    for line in _read(process / "cgroup").splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found[2] = path
        elif controller in controllers.split(","):
            found[1] = path
    return found


def _mounts(process: Path, controller: str) -> Iterator[tuple[int, str, str]]:
    """(version, the group that is mounted, mount point) of the file systems that show `controller`."""
    for line in _read(process / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if len(fields) < 5 or len(described) < 3:
            continue
        kind, options = described[0], described[2].split(",")
        if kind == "cgroup2":
            yield 2, _unescaped(fields[3]), _unescaped(fields[4])
        elif kind == "cgroup" and controller in options:
            yield 1, _unescaped(fields[3]), _unescaped(fields[4])


def _with_memory(limits: Limits, version: int, folder: Path) -> Limits:
    most_file, used_file = _MEMORY_FILES[version]
    most = _number(_read(folder / most_file))
    if most is None:
        return limits
    used = _number(_read(folder / used_file)) or 0
    stat = dict(re.findall(r"^(\w+) (\d+)$", _read(folder / "memory.stat"), re.MULTILINE))
    used -= sum(int(stat.get(name, 0)) for name in _RECLAIMABLE[version])
    free = min(most, max(0, most - used))
    return replace(limits, memory=_least(limits.memory, most), memory_free=_least(limits.memory_free, free))


def _cores(version: int, folder: Path) -> float | None:
    if version == 2:
        quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    else:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    allowed, every = _number(quota), _number(period)
    return allowed / every if allowed and every else None


def _least(known: int | None, other: int) -> int:
    return other if known is None else min(known, other)


def _number(text: str) -> int | None:
    """None for 'max', for -1 and where there is no file."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _read(path: Path) -> str:
    """Nothing where there is no such file, or none that may be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _unescaped(path: str) -> str:
    """mountinfo writes blanks as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
