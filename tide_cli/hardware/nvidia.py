"""NVIDIA GPUs and MIG slices through NVML (nvidia-ml-py)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tide_cli.hardware.inventory import Gpu, GpuProcess, Link
from tide_cli.hardware.visible import visible

_Found = tuple[tuple[Gpu, ...], tuple[Link, ...]]


def nvidia_gpus(environment: Mapping[str, str]) -> _Found:
    """The devices that CUDA_VISIBLE_DEVICES leaves, and their links; none without a driver or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return (), ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), ()
    try:
        return read_nvml(pynvml, environment.get("CUDA_VISIBLE_DEVICES"))
    finally:
        pynvml.nvmlShutdown()


def read_nvml(nvml: Any, mask: str | None) -> _Found:
    """What an initialised NVML tells. nvml: the module pynvml, or an object with the functions used here."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    sliced = [_slices(nvml, handle) for handle in handles]
    whole = [_gpu(nvml, handle, index) for index, handle in enumerate(handles) if sliced[index] is None]
    number = itertools.count(max((gpu.index for gpu in whole), default=-1) + 1)
    slices = [
        _gpu(nvml, handle, next(number), parent=index, of=handles[index])
        for index, found in enumerate(sliced)
        for handle in found or ()
    ]
    gpus = visible([*whole, *slices], mask)
    return gpus, _links(nvml, [gpu for gpu in gpus if not gpu.mig], handles)


def _slices(nvml: Any, handle: Any) -> list[Any] | None:
    """Handles of the MIG slices of a GPU; None where MIG is off."""
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        found = []
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
            except nvml.NVMLError:  # an empty place
                continue
        return found
    except nvml.NVMLError:  # GPUs without MIG
        return None


def _gpu(nvml: Any, handle: Any, index: int, parent: int | None = None, of: Any = None) -> Gpu:
    """of: the handle of the GPU that a slice is part of."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    body = handle if of is None else of
    return Gpu(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        memory=int(memory.total),
        capability=tuple(_ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, body) or ()),
        memory_used=int(memory.total) - int(memory.free),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        mig=of is not None,
        parent=parent,
        numa_node=_numa_node(nvml, body),
        processes=tuple(
            GpuProcess(process.pid, process.usedGpuMemory)
            for process in _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        ),
    )


def _numa_node(nvml: Any, handle: Any) -> int | None:
    """The node whose memory is nearest: the lowest bit of NVML's mask."""
    masks = _ask(nvml, nvml.nvmlDeviceGetMemoryAffinity, handle, 4, 0)  # 4 x 64 nodes; scope 0: the node itself
    for place, mask in enumerate(masks or ()):
        if mask:
            return place * 64 + (int(mask) & -int(mask)).bit_length() - 1
    return None


def _links(nvml: Any, gpus: Sequence[Gpu], handles: Sequence[Any]) -> tuple[Link, ...]:
    nearer = {
        nvml.NVML_TOPOLOGY_INTERNAL: "pcie",
        nvml.NVML_TOPOLOGY_SINGLE: "pcie",
        nvml.NVML_TOPOLOGY_MULTIPLE: "pcie",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "node",
        nvml.NVML_TOPOLOGY_NODE: "node",
    }
    links = []
    for first, second in itertools.combinations(gpus, 2):
        pair = handles[first.index], handles[second.index]
        # true also where the two meet in a switch, which the remote end of a single link would not tell
        fast = _ask(nvml, nvml.nvmlDeviceGetP2PStatus, *pair, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        level = _ask(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, *pair)
        kind = "nvlink" if fast == nvml.NVML_P2P_STATUS_OK else nearer.get(level, "system")
        links.append(Link(first.index, second.index, kind))
    return tuple(links)


def _ask(nvml: Any, function: Any, *arguments: Any) -> Any:
    """The answer, or None where this GPU or driver has none: what is missing here is a detail, not the GPU."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None
