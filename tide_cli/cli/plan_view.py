"""Inventory and plan as text and as JSON; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tide_cli.cli.output import table_lines
from tide_cli.hardware.cores import format_cores
from tide_cli.hardware.inventory import Gpu, Inventory, format_capability
from tide_cli.hardware.memory import GIB, MIB
from tide_cli.hardware.plan import DeviceMemory, Partition, Plan
from tide_cli.hardware.swap_pause import SwapPause
from tide_cli.printable import size_words

if TYPE_CHECKING:
    from tide_cli.supervisor.planned_commands import PlannedCommand
    from tide_cli.targets.known import Trouble

_BAR = 48
# Letters of the memory bar; what the engine takes besides is its reserve.
_LETTERS = {
    "target weights": ("W", "target weights"),
    "draft weights": ("D", "draft weights"),
    "KV cache": ("K", "KV cache"),
}
_RESERVE, _TRAINER, _USED, _FREE = ("r", "engine's reserve"), ("T", "trainer"), ("#", "used by others"), (".", "free")
_TRAINED = {"own": "a GPU of its own", "shared": "shares a serving GPU", "cpu": "on the CPU"}


def inventory_text(inventory: Inventory) -> str:
    """Tables of the GPUs, of the links between them, and of the NUMA nodes; what is withheld below them."""
    lines = ["no GPU"] if not inventory.gpus else _gpu_table(inventory.gpus)
    if inventory.links:
        lines += ["", *_link_table(inventory)]
    header = ("node", "cores", "memory", "free")
    rows = [
        (node.number, format_cores(node.cores) or "-", size_words(node.memory), size_words(node.memory_free))
        for node in inventory.nodes
    ]
    limits = ["", *(f"note: {limit}" for limit in inventory.limits)] if inventory.limits else []
    return "\n".join([*lines, "", *table_lines(header, rows), *limits])


def plan_as_dict(
    target: str, plan: Plan, commands: Mapping[str, PlannedCommand], troubles: Sequence[Trouble] = ()
) -> dict[str, Any]:
    """What `tide plan --json` prints; sizes in bytes."""
    return {
        "target": target,
        "tensor_parallel": plan.tensor_parallel,
        "dtype": plan.dtype,
        "serve": _partition_as_dict(plan.serve),
        "train": _partition_as_dict(plan.train) if plan.train else None,
        "trainer": plan.trainer,
        "max_total_tokens": plan.max_total_tokens,
        "mem_fraction_static": plan.mem_fraction_static,
        "chunked_prefill_size": plan.prefill_tokens,
        "spool_size": plan.spool_size,
        "reservoir_size": plan.reservoir_size,
        "swap_pause": _pause_as_dict(plan.swap_pause) if plan.swap_pause else None,
        "memory": [
            {
                "gpu": device.gpu,
                "name": device.name,
                "total": device.total,
                "used": device.used,
                "free": device.free,
                "parts": [vars(part) for part in device.parts],
            }
            for device in plan.memory
        ],
        "notes": list(plan.notes),
        "troubles": [vars(trouble) for trouble in troubles],
        "commands": {
            name: {"argv": command.argv, "env": command.env, "cores": format_cores(command.cores)}
            for name, command in commands.items()
        },
    }


def plan_text(target: str, plan: Plan, commands: Mapping[str, PlannedCommand], troubles: Sequence[Trouble] = ()) -> str:
    """The partition, a bar for each device, its parts in GiB, the notes, known troubles and the commands."""
    rows = [("engine", _devices(plan.serve), format_cores(plan.serve.cores), _engine_words(target, plan))]
    if plan.train:
        kept = f", reservoir of {size_words(plan.reservoir_size)}" if plan.reservoir_size else ""
        where = "GPUs of its own" if len(plan.train.gpus) > 1 else _TRAINED[plan.trainer]
        rows.append(("trainer", _devices(plan.train), format_cores(plan.train.cores), where + kept))
    lines = table_lines(("part", "devices", "cores", "what"), rows)
    if plan.memory:
        lines += ["", *_bars(plan.memory), "", *_part_table(plan.memory)]
    if plan.swap_pause:
        lines += ["", _pause_words(plan.swap_pause)]
    if plan.notes:
        lines += ["", *(f"note: {note}" for note in plan.notes)]
    for trouble in troubles:
        lines += ["", f"known trouble ({trouble.issue}): {trouble.when}"]
        lines += [f"  then: {trouble.what}", f"  TIDE: {trouble.tide}"]
    for name, command in commands.items():
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(command.env.items()))
        lines += ["", f"{name}:", f"  taskset -c {format_cores(command.cores)} env {variables} \\"]
        lines.append(f"  {shlex.join(command.argv)}")
    return "\n".join(lines)


def _engine_words(target: str, plan: Plan) -> str:
    words = [target]
    if plan.tensor_parallel > 1:
        words.append(f"tensor parallel {plan.tensor_parallel}")
    words.append(plan.dtype)
    if plan.max_total_tokens:
        words.append(f"KV cache of {plan.max_total_tokens:,} tokens")
    if plan.mem_fraction_static:
        words.append(f"static fraction {plan.mem_fraction_static:.3f}")
    if plan.spool_size:
        words.append(f"spool of {size_words(plan.spool_size)}")
    return ", ".join(words)


def _pause_as_dict(pause: SwapPause) -> dict[str, Any]:
    return vars(pause) | {"milliseconds": round(pause.milliseconds, 2)}


def _pause_words(pause: SwapPause) -> str:
    copied = f"{pause.copied_bytes / MIB:,.0f} MiB to each serving GPU"
    rate = f"{pause.bytes_per_second / 1e9:.1f} GB/s ({pause.basis})"
    if pause.pageable_bytes:
        slower = f"{pause.pageable_bytes_per_second / 1e9:.1f} GB/s"
        rate += f", {pause.pageable_bytes / MIB:,.0f} MiB of them, by way of memory that is not pinned, at {slower}"
    return f"a swap of the draft holds the engine up for about {pause.milliseconds:.1f} ms: {copied} at {rate}"


def _devices(partition: Partition) -> str:
    return f"GPU {format_cores(partition.gpus)}" if partition.gpus else "CPU"


def _partition_as_dict(partition: Partition) -> dict[str, Any]:
    return {"device": partition.device, "gpus": list(partition.gpus), "cores": format_cores(partition.cores)}


def _bars(memory: Sequence[DeviceMemory]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    seen: set[tuple[str, str]] = set()
    for device in memory:
        shares = _shares(device)
        seen.update(key for key, _ in shares)
        bar = "".join(letter * cells for (letter, _), cells in _cells(shares, device.total))
        rows.append((_label([device]), f"[{bar}]", size_words(device.total), device.name))
    legend = ", ".join(" ".join(key) for key in (*_LETTERS.values(), _RESERVE, _TRAINER, _USED, _FREE) if key in seen)
    return [*table_lines(("device", "memory", "total", "name"), rows), legend]


def _shares(device: DeviceMemory) -> list[tuple[tuple[str, str], int]]:
    """(letter, meaning) and bytes, in the order of the bar; nothing empty."""
    sizes: dict[tuple[str, str], int] = {_USED: device.used}
    for part in device.parts:
        key = _TRAINER if part.owner == "trainer" else _LETTERS.get(part.name, _RESERVE)
        sizes[key] = sizes.get(key, 0) + part.size
    sizes[_FREE] = device.free
    return [(key, size) for key, size in sizes.items() if size]


def _cells(shares: Sequence[tuple[tuple[str, str], int]], total: int) -> Iterable[tuple[tuple[str, str], int]]:
    """Cells of each share: rounded at the borders, so that they add up to the bar; one at least, to be seen."""
    done = before = 0
    for later, (key, size) in zip(reversed(range(len(shares))), shares, strict=True):
        done += size
        border = min(max(round(_BAR * done / total), before + 1), _BAR - later)
        yield key, border - before
        before = border


def _part_table(memory: Sequence[DeviceMemory]) -> list[str]:
    """A row for each part, a column for each group of devices with the same parts; GiB. What is printed adds up: what
    is free takes the rounding, and the largest part where nothing is.
    """
    groups: dict[tuple[Any, ...], list[DeviceMemory]] = {}
    for device in memory:
        if device.parts:
            groups.setdefault((device.parts, device.total, device.used), []).append(device)
    if not groups:
        return []
    names = list(dict.fromkeys((part.owner, part.name) for devices in groups.values() for part in devices[0].parts))
    columns = [device for device, *_ in groups.values()]
    sizes = [{(part.owner, part.name): _hundredths(part.size) for part in device.parts} for device in columns]
    used = [_hundredths(device.used) for device in columns]
    totals = [_hundredths(device.total) for device in columns]
    for whole, own, parts in zip(totals, used, sizes, strict=True):
        parts[max(parts, key=lambda part: parts[part])] -= max(0, own + sum(parts.values()) - whole)
    free = [whole - own - sum(parts.values()) for whole, own, parts in zip(totals, used, sizes, strict=True)]
    rows: list[list[object]] = [
        [owner, name, *(_number(parts.get((owner, name))) for parts in sizes)] for owner, name in names
    ]
    rows += [["", name, *map(_number, row)] for name, row in ((_USED[1], used), (_FREE[1], free), ("total", totals))]
    return table_lines(("for", "part (GiB)", *map(_label, groups.values())), rows)


def _gpu_table(gpus: Sequence[Gpu]) -> list[str]:
    header = ("gpu", "name", "memory", "free", "capability", "node", "processes", "uuid")
    return table_lines(
        header,
        [
            (
                gpu.index,
                gpu.name,
                size_words(gpu.memory),
                size_words(gpu.memory_free),
                format_capability(gpu) or None,
                gpu.numa_node,
                ", ".join(str(process.pid) for process in gpu.processes) or None,
                gpu.uuid,
            )
            for gpu in gpus
        ],
    )


def _link_table(inventory: Inventory) -> list[str]:
    header = ["link", *(str(gpu.index) for gpu in inventory.gpus)]
    rows = [
        [first.index, *(None if first == second else inventory.link(first, second) for second in inventory.gpus)]
        for first in inventory.gpus
    ]
    return table_lines(header, rows)


def _label(devices: Sequence[DeviceMemory]) -> str:
    numbers = [device.gpu for device in devices if device.gpu is not None]
    return f"GPU {format_cores(numbers)}" if numbers else "CPU"


def _hundredths(size: int) -> int:
    return round(100 * size / GIB)


def _number(hundredths: int | None) -> str | None:
    return None if hundredths is None else f"{hundredths / 100:.2f}"
