"""The inventory of this machine, as far as this process may use it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from tide_cli.hardware.amd import amd_gpus
from tide_cli.hardware.cgroups import limited, read_limits
from tide_cli.hardware.cores import parse_cores
from tide_cli.hardware.inventory import Inventory, NumaNode
from tide_cli.hardware.nvidia import nvidia_gpus

_NODES = Path("/sys/devices/system/node")
_CPUINFO = Path("/proc/cpuinfo")


def take_inventory() -> Inventory:
    """Look at the machine: without hidden GPUs, cores outside the affinity mask, and what control groups withhold."""
    gpus, links = nvidia_gpus(os.environ)
    if not gpus:
        gpus, links = amd_gpus(os.environ)
    nodes, limits = limited(_nodes(os.sched_getaffinity(0)), read_limits())
    return Inventory(nodes=nodes, gpus=gpus, links=links, limits=limits, bfloat16=_multiplies_bfloat16())


def _multiplies_bfloat16() -> bool:
    try:
        flags = _CPUINFO.read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _nodes(allowed: Collection[int]) -> tuple[NumaNode, ...]:
    nodes = read_nodes(_NODES, allowed)
    if len(nodes) > 1 and {core for node in nodes for core in node.cores} == set(allowed):
        return nodes
    import psutil

    memory = psutil.virtual_memory()
    return (NumaNode(0, tuple(sorted(allowed)), memory.total, memory.available),)


def read_nodes(folder: Path, allowed: Collection[int]) -> tuple[NumaNode, ...]:
    """The NUMA nodes that sysfs lists in `folder`, with the allowed ones of their cores; () where it lists none.

    Free is what a process could have: unused memory, file pages and reclaimable slabs.
    """
    nodes = []
    for path in folder.glob("node[0-9]*"):
        listed = (path / "cpulist").read_text().strip()
        cores = parse_cores(listed) if listed else ()
        fields = re.findall(r"(\S+):\s+(\d+) kB", (path / "meminfo").read_text())
        kilobytes = {name: int(value) for name, value in fields}
        free = sum(kilobytes.get(name, 0) for name in ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable"))
        total = kilobytes.get("MemTotal", 0)
        usable = tuple(core for core in cores if core in allowed)
        nodes.append(NumaNode(int(path.name[4:]), usable, total * 1024, min(free, total) * 1024))
    return tuple(sorted(nodes, key=lambda node: node.number))
