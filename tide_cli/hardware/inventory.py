"""What a machine offers: cores and memory by NUMA node, GPUs with what others use of them, links between GPUs.

An inventory can be written to a file and read back (inventory_file.py has the format).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tide_cli.hardware.cores import format_cores

VERSION = 1  # of the format
FAST_LINKS = ("nvlink", "xgmi")
LINKS = (*FAST_LINKS, "pcie", "node", "system")


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU and the bytes it holds there; None where the driver does not tell."""

    pid: int
    memory: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG slice of one. index: how `--serve-gpus` and its like call it."""

    index: int
    name: str
    memory: int  # bytes
    capability: tuple[int, ...] = ()
    memory_used: int = 0  # bytes that others hold
    vendor: str = "nvidia"
    uuid: str | None = None
    mig: bool = False
    parent: int | None = None  # index of the GPU that a MIG slice is part of
    numa_node: int | None = None
    processes: tuple[GpuProcess, ...] = ()

    @property
    def memory_free(self) -> int:
        return max(0, self.memory - self.memory_used)

    @property
    def visible_as(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it: a slice has no index there; for the others SGLang wants the index."""
        return str(self.uuid) if self.mig else str(self.index)


@dataclass(frozen=True)
class Link:
    """How two GPUs reach each other; kind: one of LINKS, the fastest first."""

    first: int
    second: int
    kind: str


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node with the cores that this process may run on; sizes in bytes."""

    number: int
    cores: tuple[int, ...]
    memory: int
    memory_free: int


@dataclass(frozen=True)
class Inventory:
    """A machine as seen by one process. disk_free: bytes where the state folder lies; None: unknown.

    limits: in words, what of the machine is withheld from this process. bfloat16: whether the cores multiply it
    natively.
    """

    nodes: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    disk_free: int | None = None
    limits: tuple[str, ...] = ()
    bfloat16: bool = False
    _kinds: dict[frozenset[int], str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = {frozenset((link.first, link.second)): link.kind for link in self.links}
        object.__setattr__(self, "_kinds", kinds)

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(sorted(core for node in self.nodes for core in node.cores))

    @property
    def memory(self) -> int:
        return sum(node.memory for node in self.nodes)

    @property
    def memory_free(self) -> int:
        return sum(node.memory_free for node in self.nodes)

    def link(self, first: Gpu, second: Gpu) -> str | None:
        """The kind of link between two GPUs; None where it is not known."""
        return self._kinds.get(frozenset((first.index, second.index)))

    def without(self, pids: Collection[int]) -> Inventory:
        """The machine as it is once these processes have given their GPU memory back."""
        return replace(self, gpus=tuple(_without(gpu, pids) for gpu in self.gpus))

    def to_json(self) -> str:
        """The format of inventory_file.py, sizes in bytes."""
        return json.dumps(self.as_dict(), indent=2)

    def as_dict(self) -> dict[str, Any]:
        """What `to_json` writes."""
        return {
            "version": VERSION,
            "nodes": [
                {
                    "node": node.number,
                    "cores": format_cores(node.cores),
                    "memory": node.memory,
                    "memory_free": node.memory_free,
                }
                for node in self.nodes
            ],
            "gpus": [_gpu_as_dict(gpu) for gpu in self.gpus],
            "links": [{"gpus": [link.first, link.second], "kind": link.kind} for link in self.links],
            "disk_free": self.disk_free,
            "limits": list(self.limits),
            "bfloat16": self.bfloat16,
        }


def _without(gpu: Gpu, pids: Collection[int]) -> Gpu:
    given_back = sum(process.memory or 0 for process in gpu.processes if process.pid in pids)
    others = tuple(process for process in gpu.processes if process.pid not in pids)
    return replace(gpu, memory_used=max(0, gpu.memory_used - given_back), processes=others)


def parse_capability(text: str) -> tuple[int, ...]:
    """'9.0' -> (9, 0); AMD's 'gfx942' -> (9, 4, 2), 'gfx1201' -> (12, 0, 1), 'gfx90a' -> (9, 0, 10). Else ()."""
    if match := re.match(r"gfx(\d+)([0-9a-f])([0-9a-f])\b", text.lower()):
        return int(match[1]), int(match[2], 16), int(match[3], 16)
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"\d+(\.\d+)*", text) else ()


def format_capability(gpu: Gpu) -> str:
    """The inverse of `parse_capability`; '' where it is not known."""
    if gpu.vendor == "amd" and len(gpu.capability) == 3:
        major, minor, stepping = gpu.capability
        return f"gfx{major}{minor:x}{stepping:x}"
    return ".".join(map(str, gpu.capability))


def _gpu_as_dict(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "vendor": gpu.vendor,
        "name": gpu.name,
        "memory": gpu.memory,
        "memory_used": gpu.memory_used,
        "processes": [vars(process) for process in gpu.processes],
        "capability": format_capability(gpu),
        "uuid": gpu.uuid,
        "mig": gpu.mig,
        "parent": gpu.parent,
        "numa_node": gpu.numa_node,
    }
