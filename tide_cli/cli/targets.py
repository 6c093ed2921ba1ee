"""`tide targets`: the targets that are known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json, print_table
from tide_cli.cli.where import Json

if TYPE_CHECKING:
    from tide_cli.targets.known import KnownTarget

_FRESH = "a fresh one"


@app.command()
def targets(json: Json = False) -> None:
    """The known targets: size, draft, memory, whether here.

    Memory is the least that serves it, without a trainer: of one GPU, or main memory on a CPU. Several GPUs share the
    weights; `tide plan --target NAME` says it exactly, for any other target too.
    """
    from tide_cli.targets.known import known_targets

    rows = [_row(target) for target in known_targets().values()]
    if json:
        print_json(rows)
        return
    print_table(
        ("target", "parameters", "dtype", "draft", "GPU GiB", "CPU GiB", "here"),
        [
            (
                row["name"],
                _count(row["parameters"]),
                row["dtype"],
                row["draft"] or _FRESH,
                *(None if row[need] is None else f"{row[need] / 2**30:.0f}" for need in ("gpu_memory", "cpu_memory")),
                row["here"],
            )
            for row in rows
        ],
    )


def _row(target: KnownTarget) -> dict[str, Any]:
    """gpu_memory, cpu_memory: bytes; here: embedded, downloaded or no."""
    from tide_cli.hardware.needs import least_memory

    shape = target.shape
    gpu, cpu = least_memory(shape) if shape else (None, None)
    return {
        "name": target.name,
        "title": target.title,
        "licence": target.license,
        "hub_id": target.hub_id,
        "parameters": shape.parameters if shape else None,
        "dtype": shape.stored_as if shape else None,
        "draft": target.draft_hub_id,
        "gpu_memory": gpu,
        "cpu_memory": cpu,
        "here": _here(target),
    }


def _here(target: KnownTarget) -> str:
    if target.hub_id is None:
        return "embedded"
    try:
        from tide_cli.targets.hub import complete

        return "downloaded" if complete(target.hub_id, target.revision) else "no"
    except ImportError:  # without the hub's client nothing was downloaded by it
        return "no"


def _count(parameters: int | None) -> str | None:
    if parameters is None:
        return None
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"
