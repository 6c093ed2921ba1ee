"""An inventory in a file: printed by `tide gpus --json`, or written by hand to plan for a machine before it is bought.

Format, version 1, one JSON object:

    version    1
    nodes      [{"node": 0, "cores": "0-31", "memory": "256GiB", "memory_free": "240GiB"}]
    gpus       [{"index": 0, "name": "NVIDIA H100", "memory": "80GiB", "capability": "9.0"}], and where they apply
                 vendor          "nvidia" or "amd", the same for all; by default, whose capability it is
                 memory_used     taken already, by others (0)
                 processes       [{"pid": 7, "memory": "3GiB"}], who takes it
                 uuid            needed with "mig"
                 mig             true: a slice of a GPU
                 parent          needed with "mig": the number of that GPU, which is none of the others here
                 numa_node       the node the GPU hangs on
    links      [{"gpus": [0, 1], "kind": "nvlink"}]: nvlink, xgmi, pcie (one switch or bridge), node, system
    disk_free  for the spool
    bfloat16   true: the cores multiply bfloat16 natively (false)
    limits     texts that say what of the machine is withheld; a plan repeats them
    source     texts that say where the figures come from; for readers alone

Sizes are bytes, or text such as "80GiB". `capability` is NVIDIA's compute capability or AMD's architecture ("gfx942").
Only version, nodes and the fields of the examples are required; null is the same as leaving a field out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from tide_cli.errors import UsageError, reason
from tide_cli.hardware.cores import parse_cores
from tide_cli.hardware.inventory import LINKS, VERSION, Gpu, GpuProcess, Inventory, Link, NumaNode, parse_capability
from tide_cli.json_files import json_object
from tide_cli.setting_values import parse_size

_VENDORS = ("nvidia", "amd")
_MOST = 2**31 - 1  # of a number that is no size

_T = TypeVar("_T")


def read_inventory(text: str) -> Inventory:
    """What `Inventory.to_json` writes, and what people leave out of it. Raises UsageError naming the field."""
    try:
        values = json_object(text, _each_once)
    except ValueError as error:
        raise _malformed(reason(error)) from None
    if values.get("version") != VERSION or type(values["version"]) is not int:
        raise _malformed(f"it must be an object with version {VERSION}")
    fields = _Fields(values, "")
    inventory = Inventory(
        nodes=tuple(map(_node, fields.objects("nodes", needed=True))),
        gpus=tuple(map(_gpu, fields.objects("gpus"))),
        links=tuple(map(_link, fields.objects("links"))),
        disk_free=fields.get("disk_free", _size, None),
        limits=fields.get("limits", _texts, ()),
        bfloat16=fields.get("bfloat16", _truth, False),
    )
    fields.get("source", _texts, ())
    fields.end(ignored=("version",))
    _check_nodes(inventory)
    _check_gpus(inventory.gpus)
    _check_links(inventory)
    return inventory


class _Fields:
    """An object of the file; `where` is its place, such as 'gpus[0].'. What is wrong is refused with its name."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise _malformed(f"{where.removesuffix('.')}: {_shown(values)} is not an object")
        self._values, self._where = values, where
        self._asked: set[str] = set()

    def need(self, name: str, read: Callable[[Any], _T]) -> _T:
        """A field that must be there. read: raises ValueError with the reason."""
        self._asked.add(name)
        if self._values.get(name) is None:
            self.refuse(name, "it is missing")
        try:
            return read(self._values[name])
        except ValueError as error:
            self.refuse(name, str(error))

    def get(self, name: str, read: Callable[[Any], _T], default: Any) -> Any:
        """A field that may be left out."""
        self._asked.add(name)
        return default if self._values.get(name) is None else self.need(name, read)

    def objects(self, name: str, *, needed: bool = False) -> list[_Fields]:
        """A list of objects."""
        found = self.need(name, _list) if needed else self.get(name, _list, [])
        return [_Fields(each, f"{self._where}{name}[{place}].") for place, each in enumerate(found)]

    def refuse(self, name: str, why: str) -> NoReturn:
        raise _malformed(f"{self._where}{name}: {why}")

    def end(self, ignored: Iterable[str] = ()) -> None:
        """Nothing else may stand in it."""
        if unknown := sorted(self._values.keys() - self._asked - set(ignored)):
            raise _malformed(f"{self._where}{unknown[0]}: there is no such field")


def _node(fields: _Fields) -> NumaNode:
    memory = fields.need("memory", _memory)
    free = fields.need("memory_free", _size)
    if free > memory:
        fields.refuse("memory_free", "it is more than memory")
    node = NumaNode(fields.need("node", _whole), fields.need("cores", _cores), memory, free)
    fields.end()
    return node


def _gpu(fields: _Fields) -> Gpu:
    memory = fields.need("memory", _memory)
    used = fields.get("memory_used", _size, 0)
    if used > memory:
        fields.refuse("memory_used", "it is more than memory")
    amds = fields.need("capability", _any_text).lower().startswith("gfx")
    gpu = Gpu(
        index=fields.need("index", _whole),
        name=fields.need("name", _text),
        memory=memory,
        capability=fields.need("capability", _capability),
        memory_used=used,
        vendor=fields.get("vendor", _one_of(_VENDORS), "amd" if amds else "nvidia"),
        uuid=fields.get("uuid", _text, None),
        mig=fields.get("mig", _truth, False),
        parent=fields.get("parent", _whole, None),
        numa_node=fields.get("numa_node", _whole, None),
        processes=tuple(map(_process, fields.objects("processes"))),
    )
    if gpu.mig and gpu.uuid is None:
        fields.refuse("uuid", "it is missing, and a MIG slice has no other name")
    if gpu.mig != (gpu.parent is not None):
        fields.refuse("parent", "it is missing" if gpu.mig else "only a MIG slice has one")
    if gpu.mig and gpu.vendor != "nvidia":
        fields.refuse("mig", "only NVIDIA's GPUs are cut so")
    if gpu.capability and amds != (gpu.vendor == "amd"):
        fields.refuse("capability", f"it is {'AMD' if amds else 'NVIDIA'}'s, and vendor is {gpu.vendor}")
    fields.end()
    return gpu


def _process(fields: _Fields) -> GpuProcess:
    process = GpuProcess(fields.need("pid", _whole), fields.get("memory", _size, None))
    fields.end()
    return process


def _link(fields: _Fields) -> Link:
    first, second = fields.need("gpus", _pair)
    link = Link(first, second, fields.need("kind", _one_of(LINKS)))
    fields.end()
    return link


def _check_nodes(inventory: Inventory) -> None:
    if not inventory.cores:
        raise _malformed("nodes: there are no cores")
    _refuse_twice("nodes: node", (node.number for node in inventory.nodes))
    _refuse_twice("nodes: core", (core for node in inventory.nodes for core in node.cores))


def _check_gpus(gpus: Sequence[Gpu]) -> None:
    _refuse_twice("gpus: GPU", (gpu.index for gpu in gpus))
    _refuse_twice("gpus: uuid", (gpu.uuid for gpu in gpus if gpu.uuid))
    if len({gpu.vendor for gpu in gpus}) > 1:
        raise _malformed("gpus: some are NVIDIA's, some AMD's; an engine runs on those of one maker")
    whole = {gpu.index for gpu in gpus if not gpu.mig}
    for gpu in gpus:
        if gpu.parent in whole:
            raise _malformed(f"gpus: GPU {gpu.index} is a slice of GPU {gpu.parent}, which is offered as a whole")


def _check_links(inventory: Inventory) -> None:
    known = {gpu.index for gpu in inventory.gpus}
    for place, link in enumerate(inventory.links):
        if foreign := {link.first, link.second} - known:
            raise _malformed(f"links[{place}].gpus: there is no GPU {min(foreign)}")
    _refuse_twice("links: a link of GPUs", (tuple(sorted((link.first, link.second))) for link in inventory.links))


def _refuse_twice(what: str, values: Iterable[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            words = " and ".join(map(str, value)) if isinstance(value, tuple) else value
            raise _malformed(f"{what} {words} stands in it twice")
        seen.add(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is not a list")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ValueError(f"{_shown(value)} is not a whole number from 0 on")
    return value


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{_shown(value)} is not a size; write bytes, or for example 80GiB")
    return parse_size(value)


def _memory(value: Any) -> int:
    size = _size(value)
    if size == 0:
        raise ValueError("there must be some")
    return size


def _any_text(value: Any) -> str:
    if not isinstance(value, str) or not (value.isprintable() and len(value) <= 200):
        raise ValueError(f"{_shown(value)} is not a text of one short line")
    return value


def _text(value: Any) -> str:
    if not _any_text(value).strip():
        raise ValueError("it is empty")
    return str(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _capability(value: Any) -> tuple[int, ...]:
    found = parse_capability(text := _any_text(value))
    if text and not found:  # an empty one is not known
        raise ValueError(f"{_shown(value)} is none; write for example 9.0 or gfx942")
    return found


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _one_of(words: Sequence[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{_shown(value)} is none of {', '.join(words)}")
        return str(value)

    return read


def _cores(value: Any) -> tuple[int, ...]:
    return parse_cores(_any_text(value)) if value != "" else ()  # a node may be memory alone


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or value[0] == value[1]:
        raise ValueError(f"{_shown(value)} are not two GPUs")
    return _whole(value[0]), _whole(value[1])


def _shown(value: Any) -> str:
    """As it stands in the file, cut short."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(
            f"{_shown(next(name for name in values if [n for n, _ in pairs].count(name) > 1))} stands twice"
        )
    return values


def _malformed(why: str) -> UsageError:
    return UsageError("the inventory cannot be read", why=why, remedy="`tide gpus --json` prints one to start from")
