"""What a GPU can do at most, from its maker's data sheet: memory bandwidth and dense bfloat16 tensor arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from tide_cli.errors import UsageError
from tide_cli.hardware.inventory import Gpu


@dataclass(frozen=True)
class GpuFigures:
    """bandwidth: bytes/s of its memory; flops: bfloat16 operations/s of its tensor cores, without sparsity."""

    bandwidth: float
    flops: float


# By a part of the name that the driver gives, in the order in which they are looked for. TB/s and TFLOP/s; where a
# sheet gives arithmetic with sparsity alone it is halved.
_SHEETS: tuple[tuple[str, float, float], ...] = (
    ("B200", 8.0, 2250),  # NVIDIA DGX B200 data sheet: 64 TB/s and 36 (sparse) PFLOP/s BF16 for eight
    ("H200", 4.8, 989.5),  # NVIDIA H200 data sheet: 4.8 TB/s, 1,979 (sparse)
    ("H100 NVL", 3.9, 835.5),  # NVIDIA H100 data sheet: 3.9 TB/s, 1,671 (sparse)
    ("H100 PCIe", 2.0, 756.5),  # NVIDIA H100 data sheet, first edition: 2 TB/s, 1,513 (sparse)
    ("H100", 3.35, 989.5),  # NVIDIA H100 data sheet, SXM: 3.35 TB/s, 1,979 (sparse)
    ("A100-PCIE-40GB", 1.555, 312),  # NVIDIA A100 data sheet, 40 GB
    ("A100-SXM4-40GB", 1.555, 312),
    ("A100", 2.039, 312),  # NVIDIA A100 data sheet, SXM 80 GB: 2,039 GB/s, 312
    ("L40S", 0.864, 362.05),  # NVIDIA L40S data sheet: 864 GB/s, 362.05
    ("RTX PRO 6000", 1.792, 503.8),  # NVIDIA RTX Blackwell PRO architecture paper: 1,792 GB/s, 503.8 (FP32 accumulate)
    ("RTX 6000 Ada", 0.96, 364.2),  # NVIDIA RTX 6000 Ada data sheet: 960 GB/s; 1,457 (FP8, sparse) / 4
    ("RTX A6000", 0.768, 154.8),  # NVIDIA RTX A6000 data sheet: 768 GB/s, 309.7 (sparse)
    ("RTX 4090", 1.008, 165.2),  # NVIDIA Ada architecture paper: 1,008 GB/s, 165.2 (FP32 accumulate)
    ("MI355X", 8.0, 2516.6),  # AMD Instinct MI355X data sheet: 8 TB/s, 2.5166 PFLOP/s
    ("MI325X", 6.0, 1307.4),  # AMD Instinct MI325X data sheet
    ("MI300X", 5.3, 1307.4),  # AMD Instinct MI300X data sheet: 5.3 TB/s, 1,307.4
    # An MI250 is two devices of 64 GB to the driver: half the sheet's 3.2768 TB/s and 362.1 (383.0 for the MI250X).
    ("MI250X", 1.6384, 191.5),
    ("MI250", 1.6384, 181.05),
)


def gpu_figures(gpu: Gpu) -> GpuFigures:
    """The figures of a whole GPU. Raises UsageError for a MIG slice and for a name that no sheet is known for."""
    remedy = "give the figures with --bandwidth and --tflops"
    if gpu.mig:
        raise UsageError(f"GPU {gpu.index} is a slice", why="how fast one is no data sheet says", remedy=remedy)
    for name, terabytes, teraflops in _SHEETS:
        if name.lower() in gpu.name.lower():
            return GpuFigures(terabytes * 1e12, teraflops * 1e12)
    raise UsageError(f"how fast a GPU named {gpu.name!r} is is not known here", remedy=remedy)
