"""How busy the devices of the plan are: cores through the kernel, NVIDIA's GPUs through NVML.

Of AMD's GPUs and of MIG slices only the index is told.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tide_cli.hardware.cores import format_cores
from tide_cli.hardware.plan import Partition, Plan


class DeviceMeter:
    """For one thread; `close` when done."""

    def __init__(self, plan: Plan) -> None:
        shared = plan.train is not None and set(plan.train.gpus) & set(plan.serve.gpus)
        parts = [("engine, trainer" if shared else "engine", plan.serve)]
        if plan.train is not None and not shared:
            parts.append(("trainer", plan.train))
        self._parts: list[tuple[str, Partition]] = parts
        self._processor = _processor_name()
        self._nvml = _nvml() if any(part.gpus for _, part in parts) else None
        psutil.cpu_percent(percpu=True)  # the first call only begins to count

    def look(self) -> list[dict[str, Any]]:
        """The status field `devices`: use from 0 to 1 since the look before, memory in bytes, power in watts.

        None where it is not known. Memory is the whole device's, whoever takes it.
        """
        busy = psutil.cpu_percent(percpu=True)
        memory = psutil.virtual_memory()
        rows: list[dict[str, Any]] = []
        for role, part in self._parts:
            if part.gpus:
                rows += [{"role": role, "cores": None, "gpu": gpu, **self._gpu(gpu)} for gpu in part.gpus]
                continue
            seen = [busy[core] for core in part.cores if core < len(busy)]
            rows.append(
                {
                    "role": role,
                    "cores": format_cores(part.cores),
                    "gpu": None,
                    "name": self._processor,
                    "use": round(sum(seen) / len(seen) / 100, 3) if seen else None,
                    "memory_used": memory.total - memory.available,
                    "memory_total": memory.total,
                    "power": None,
                }
            )
        return rows

    def _gpu(self, index: int) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(("name", "use", "memory_used", "memory_total", "power"))
        nvml = self._nvml
        if nvml is None:
            return row
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            row["name"] = str(nvml.nvmlDeviceGetName(handle))
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            row["memory_used"], row["memory_total"] = int(memory.total) - int(memory.free), int(memory.total)
            with suppress(nvml.NVMLError):
                row["use"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            with suppress(nvml.NVMLError):
                row["power"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000  # told in milliwatts
        return row

    def close(self) -> None:
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()


def _nvml() -> Any:
    """An initialised NVML; None without a driver or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _processor_name() -> str | None:
    with suppress(OSError), Path("/proc/cpuinfo").open() as file:
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), None)
    return None
