"""AMD GPUs through amdsmi, which ROCm brings along. Written from its documentation: not run on such a machine yet."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tide_cli.hardware.inventory import Gpu, GpuProcess, Link, parse_capability
from tide_cli.hardware.visible import visible

_Found = tuple[tuple[Gpu, ...], tuple[Link, ...]]
_MEBIBYTE = 2**20  # amdsmi counts VRAM in these
_XGMI = "XGMI"


def amd_gpus(environment: Mapping[str, str]) -> _Found:
    """The devices that HIP_VISIBLE_DEVICES, else CUDA_VISIBLE_DEVICES, leaves; none without ROCm's amdsmi."""
    try:
        import amdsmi
    except (ImportError, KeyError, OSError):  # the module looks for its C library when it is imported
        return (), ()
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException:
        return (), ()
    try:
        mask = environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES"))
        return read_amdsmi(amdsmi, mask)
    finally:
        amdsmi.amdsmi_shut_down()


def read_amdsmi(smi: Any, mask: str | None) -> _Found:
    """What an initialised amdsmi tells. smi: the module, or an object with the functions used here."""
    handles = list(smi.amdsmi_get_processor_handles())
    gpus = visible([_gpu(smi, handle, index) for index, handle in enumerate(handles)], mask)
    links = []
    for first, second in itertools.combinations(gpus, 2):
        link = _ask(smi, smi.amdsmi_topo_get_link_type, handles[first.index], handles[second.index]) or {}
        links.append(Link(first.index, second.index, _kind(smi, link.get("type"))))
    return gpus, tuple(links)


def _gpu(smi: Any, handle: Any, index: int) -> Gpu:
    asic = _ask(smi, smi.amdsmi_get_gpu_asic_info, handle) or {}
    memory = smi.amdsmi_get_gpu_vram_usage(handle)
    node = _ask(smi, smi.amdsmi_topo_get_numa_node_number, handle)
    return Gpu(
        index=index,
        name=str(asic.get("market_name") or "AMD GPU"),
        memory=int(memory["vram_total"]) * _MEBIBYTE,
        capability=parse_capability(str(asic.get("target_graphics_version", ""))),
        memory_used=int(memory["vram_used"]) * _MEBIBYTE,
        vendor="amd",
        uuid=_ask(smi, smi.amdsmi_get_gpu_device_uuid, handle),
        numa_node=node if node is not None and node >= 0 else None,  # -1: the board does not say
        processes=tuple(
            GpuProcess(int(process["pid"]), process.get("memory_usage", {}).get("vram_mem"))
            for process in _ask(smi, smi.amdsmi_get_gpu_process_list, handle) or ()
        ),
    )


def _kind(smi: Any, link_type: Any) -> str:
    """The numbers of the link types differ between releases of ROCm; their names do not."""
    for enumeration in ("AmdSmiLinkType", "AmdSmiIoLinkType"):
        types = getattr(smi, enumeration, None)
        named = [item for item in types or () if item.name.endswith(_XGMI)]
        if named:
            return "xgmi" if link_type in (named[0], named[0].value) else "system"
    return "system"


def _ask(smi: Any, function: Any, *arguments: Any) -> Any:
    """The answer, or None where this GPU or driver has none."""
    try:
        return function(*arguments)
    except smi.AmdSmiException:
        return None
