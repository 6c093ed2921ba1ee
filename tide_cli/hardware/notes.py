"""What a plan has to say for itself: everything about it that a user would not expect."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tide_cli.hardware.cores import format_cores
from tide_cli.hardware.gpus import fast_pairs
from tide_cli.hardware.inventory import Gpu, Inventory
from tide_cli.hardware.memory import GIB, Part, total
from tide_cli.hardware.plan import Plan
from tide_cli.hardware.wishes import Wishes
from tide_cli.targets.shape import TargetShape


def gpu_notes(
    inventory: Inventory,
    pool: Sequence[Gpu],
    serve: Sequence[Gpu],
    trainers: Sequence[Gpu],
    wishes: Wishes,
    target: str,
) -> list[str]:
    """About the GPUs themselves: idle, taken by others, unequal, loosely linked, untried. target: as typed."""
    notes = []
    if idle := [gpu.index for gpu in pool if gpu not in serve and gpu not in trainers]:
        notes.append(
            f"GPU {format_cores(idle)} {'stay' if len(idle) > 1 else 'stays'} idle"
            + _use(pool, idle, trainers, serve, wishes, target)
        )
    if len(trainers) > 1:
        numbers = format_cores([gpu.index for gpu in trainers])
        notes.append(f"GPU {numbers} train together, each on a batch of its own")
    for gpu in pool:
        if gpu.memory_used >= GIB:
            pids = ", ".join(str(process.pid) for process in gpu.processes)
            holders = f" (pid {pids})" if pids else ""
            notes.append(f"GPU {gpu.index}: others hold {gpu.memory_used / GIB:.1f} GiB{holders}")
    if len({(gpu.name, gpu.capability) for gpu in serve}) > 1:
        notes.append("the serving GPUs differ: the slowest one sets the pace")
    if len({(gpu.name, gpu.capability) for gpu in trainers}) > 1:
        notes.append("the training GPUs differ: the slowest one sets the pace")
    pairs = len(serve) * (len(serve) - 1) // 2
    if inventory.links and fast_pairs(serve, inventory) < pairs:
        numbers = format_cores([gpu.index for gpu in serve])
        notes.append(f"GPU {numbers} are not all joined by NVLink or XGMI: working together they wait for PCI Express")
    if any(gpu.vendor == "amd" for gpu in serve):
        notes.append("AMD GPUs: TIDE has not been run on one yet")
    return notes


def _use(
    pool: Sequence[Gpu],
    idle: Sequence[int],
    trainers: Sequence[Gpu],
    serve: Sequence[Gpu],
    wishes: Wishes,
    target: str,
) -> str:
    """What idle GPUs could do that others have left free."""
    free = [gpu.index for gpu in pool if gpu.index in idle and gpu.memory_used < GIB]
    if not free:
        return ""
    words = (
        f": a second appliance could use them, `tide up --target {shlex.quote(target)} --gpus {format_cores(free)}"
        " --serve-cores A --train-cores B --port N --state-dir DIR`, each of the two on cores of its own"
    )
    if wishes.train_gpus is None and trainers and not any(gpu.mig or gpu in serve for gpu in trainers):
        words += f"; or --train-gpus {format_cores(sorted([*free, *(gpu.index for gpu in trainers)]))}, to learn faster"
    return words


def fewer_note(serving: int, otherwise: int, of: int, wishes: Wishes) -> list[str]:
    """What --train-gpus takes from serving. otherwise: how many of the GPUs would serve without it."""
    if serving >= otherwise:
        return []
    serve = "serves" if serving == 1 else "serve"
    because = f"because of --train-gpus {wishes.train_gpus}: without it {otherwise} would"
    return [f"{serving} of {of} GPUs {serve} {because}"]


def disk_note(plan: Plan, free: int | None) -> list[str]:
    """Where a spool is asked for that a start would refuse. free: bytes of the disk."""
    wanted = (plan.spool_size or 0) + (plan.reservoir_size or 0)
    if free is None or wanted <= free:
        return []
    sizes = f"{free / GIB:.1f} GiB free, spool and old samples take {wanted / GIB:.1f}"
    return [f"the disk has {sizes}: a start refuses it"]


def float32_note(shape: TargetShape | None, dtype: str) -> str | None:
    """Why a checkpoint takes twice its size on a CPU that serves it in `dtype`; None where it does not."""
    if shape is None or shape.quantisation or shape.element_bytes != 2 or dtype != "float32":
        return None
    return "on this CPU the weights are served in float32: twice the checkpoint's size"


def trainer_note(
    trainer: str, serve: Sequence[Gpu], gpus: Sequence[Gpu], parts: Sequence[Part], wishes: Wishes, *, given_up: int = 0
) -> list[str]:
    """Where the draft is trained, unless that is a GPU of its own. given_up: how many GPUs would serve beside one of
    its own, 0 where there is no such choice."""
    size = total(parts) / GIB
    because = []
    if given_up and trainer in ("shared", "cpu"):
        because = [
            f"a GPU of its own for the trainer would leave {given_up} of {len(serve)} GPUs to serve, which costs more"
            " than a better draft brings; --train-gpus names one all the same"
        ]
    if trainer == "shared" and gpus:
        alone = "one GPU" if len(serve) == 1 else f"GPU {gpus[0].index}"
        return [f"{alone}: engine and trainer share it, training slows serving down", *because]
    if trainer == "cpu":
        runs = f"the trainer runs on the CPU, with {size:.1f} GiB of main memory: it learns more slowly there"
        return [f"{runs}, and slows no GPU down", *because]
    if trainer == "off" and wishes.training:
        return [f"adaptation is off: no GPU has room for the trainer, nor main memory {size:.1f} GiB"]
    if not wishes.training and wishes.train_gpus:
        return ["--train-gpus has no effect: nothing is trained"]
    return []
