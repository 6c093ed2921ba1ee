"""What this machine offers to this process: cores, memory, GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One CUDA device, by the index that CUDA_VISIBLE_DEVICES takes."""

    index: int
    name: str
    memory: int  # bytes


@dataclass(frozen=True)
class Inventory:
    """cores: ids this process may run on; memory and memory_free in bytes; gpus in CUDA order."""

    cores: tuple[int, ...]
    memory: int
    memory_free: int
    gpus: tuple[Gpu, ...] = ()


def take_inventory() -> Inventory:
    """Look at the machine. Cores outside this process's affinity mask do not count."""
    import psutil

    memory = psutil.virtual_memory()
    return Inventory(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory=memory.total,
        memory_free=memory.available,
        gpus=_nvidia_gpus(),
    )


def _nvidia_gpus() -> tuple[Gpu, ...]:
    """The NVIDIA devices that this process may use; none without a driver or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = pynvml.nvmlDeviceGetName(handle)
            gpus.append(Gpu(index, str(name), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)))
    finally:
        pynvml.nvmlShutdown()
    return _visible(tuple(gpus), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(gpus: tuple[Gpu, ...], mask: str | None) -> tuple[Gpu, ...]:
    """Only the devices of a CUDA_VISIBLE_DEVICES mask, in its order; like CUDA, stop at the first unknown one."""
    if mask is None:
        return gpus
    by_index = {str(gpu.index): gpu for gpu in gpus}
    chosen = []
    for entry in mask.split(","):
        if entry.strip() not in by_index:
            break
        chosen.append(by_index[entry.strip()])
    return tuple(chosen)
