"""What a machine offers: cores and memory by NUMA node, GPUs with what others use of them, links between GPUs.

An inventory can be written to a file and read back, or written by hand, so that a machine can be planned for before it
is bought; `tide gpus --json` prints one. Format, version 1, one JSON object:

    version    1
    nodes      [{"node": 0, "cores": "0-31", "memory": "256GiB", "memory_free": "240GiB"}]
    gpus       [{"index": 0, "name": "NVIDIA H100", "memory": "80GiB", "capability": "9.0"}], and where they apply
                 vendor          "nvidia" (the default) or "amd"
                 memory_used     taken already, by others (0)
                 processes       [{"pid": 7, "memory": "3GiB"}], who takes it
                 uuid            needed with "mig"
                 mig             true: a slice of a GPU. `parent` is the index of that GPU
                 numa_node       the node the GPU hangs on
    links      [{"gpus": [0, 1], "kind": "nvlink"}]: nvlink, xgmi, pcie (one switch or bridge), node, system
    disk_free  for the spool

Sizes are bytes, or text such as "80GiB". `capability` is NVIDIA's compute capability or AMD's architecture ("gfx942").
Only version, nodes and the fields of the examples are required.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tide_cli.errors import UsageError
from tide_cli.hardware.cores import format_cores, parse_cores
from tide_cli.settings import parse_size

VERSION = 1
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
    """A machine as seen by one process. disk_free: bytes where the state folder lies; None: unknown."""

    nodes: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    disk_free: int | None = None
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
        """The format above, sizes in bytes."""
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
        }

    @classmethod
    def from_json(cls, text: str) -> Inventory:
        """The inverse of `to_json`, lenient about what may be left out. Raises UsageError naming what is wrong."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"it is not JSON: {error}") from None
        if not isinstance(values, dict) or values.get("version") != VERSION:
            raise _malformed(f"it must be an object with version {VERSION}")
        try:
            inventory = cls(
                nodes=tuple(_read_node(node) for node in values["nodes"]),
                gpus=tuple(_read_gpu(gpu) for gpu in values.get("gpus", ())),
                links=tuple(_read_link(link) for link in values.get("links", ())),
                disk_free=None if values.get("disk_free") is None else parse_size(values["disk_free"]),
            )
            return _checked(inventory)
        except KeyError as error:
            raise _malformed(f"{error} is missing") from None
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise _malformed(str(error)) from None


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


def _read_node(values: dict[str, Any]) -> NumaNode:
    memory = parse_size(values["memory"])
    free = parse_size(values["memory_free"])
    if free > memory:
        raise ValueError(f"node {values['node']} has more free memory than memory")
    cores = parse_cores(values["cores"]) if values["cores"] else ()  # a node may be memory alone
    return NumaNode(int(values["node"]), cores, memory, free)


def _read_gpu(values: dict[str, Any]) -> Gpu:
    known = {"index", "name", "memory", "capability", "memory_used", "vendor", "uuid", "mig", "parent", "numa_node"}
    if unknown := sorted(values.keys() - known - {"processes"}):
        raise ValueError(f"a GPU has no field {unknown[0]!r}")
    fields = {name: values[name] for name in known & values.keys()} | {
        "index": int(values["index"]),
        "name": str(values["name"]),
        "memory": parse_size(values["memory"]),
        "memory_used": parse_size(values.get("memory_used") or 0),
        "capability": parse_capability(str(values["capability"])),
        "processes": tuple(
            GpuProcess(process["pid"], None if process.get("memory") is None else parse_size(process["memory"]))
            for process in values.get("processes") or ()
        ),
    }
    return Gpu(**fields)


def _read_link(values: dict[str, Any]) -> Link:
    first, second = values["gpus"]
    return Link(int(first), int(second), str(values["kind"]))


def _checked(inventory: Inventory) -> Inventory:
    if not inventory.cores:
        raise _malformed("it has no cores")
    for name, numbers in (
        ("core", [core for node in inventory.nodes for core in node.cores]),
        ("GPU", [gpu.index for gpu in inventory.gpus]),
    ):
        if twice := _first_twice(numbers):
            raise _malformed(f"{name} {twice[0]} stands in it twice")
    for gpu in inventory.gpus:
        if gpu.vendor not in ("nvidia", "amd"):
            raise _malformed(f"GPU {gpu.index}: vendor {gpu.vendor!r} is neither nvidia nor amd")
        if gpu.mig and not gpu.uuid:
            raise _malformed(f"GPU {gpu.index}: a MIG slice needs its uuid")
    known = {gpu.index for gpu in inventory.gpus}
    for link in inventory.links:
        if link.kind not in LINKS or not {link.first, link.second} <= known:
            raise _malformed(f"a link of kind {link.kind!r} between GPUs {link.first} and {link.second}")
    return inventory


def _first_twice(numbers: Sequence[int]) -> list[int]:
    return [number for place, number in enumerate(numbers) if number in numbers[:place]][:1]


def _malformed(why: str) -> UsageError:
    return UsageError("the inventory cannot be read", why=why, remedy="`tide gpus --json` prints one to start from")
