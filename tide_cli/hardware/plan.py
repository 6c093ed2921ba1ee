"""What a plan says: which devices serve, which train, and what each byte of their memory is for."""

from __future__ import annotations

from dataclasses import dataclass

from tide_cli.hardware.memory import EARLY_PARTS, Part, total
from tide_cli.hardware.swap_pause import SwapPause


@dataclass(frozen=True)
class Partition:
    """The devices of one child: CPU core ids (never empty) and GPU indices (empty on a CPU).

    visible: what CUDA_VISIBLE_DEVICES calls the GPUs, where that is not their indices.
    """

    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    visible: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """'cuda' or 'cpu', as torch names it; AMD's GPUs are 'cuda' too."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device, in bytes. used: by others; gpu: its index, None for main memory."""

    gpu: int | None
    name: str
    total: int
    used: int
    parts: tuple[Part, ...]

    @property
    def planned(self) -> int:
        return total(self.parts)

    @property
    def free(self) -> int:
        """What neither others nor the plan takes."""
        return self.total - self.used - self.planned


@dataclass(frozen=True)
class Plan:
    """serve: the engine's devices; train: the trainer's, None where nothing is trained; notes: for the user.

    dtype: that the target is served in. The figures are None, and memory empty, where the target's shape was not known.
    max_total_tokens: of the KV cache; mem_fraction_static, prefill_tokens: SGLang's options of that name and
    --chunked-prefill-size, None on a CPU. spool_size: bytes, None where the disk is not known. reservoir_size: bytes of
    old samples beside that ring, None where nothing is trained, or the disk or the target's shape is not known.
    swap_pause: None without a draft and on a CPU too.
    """

    serve: Partition
    train: Partition | None
    dtype: str = "bfloat16"
    notes: tuple[str, ...] = ()
    memory: tuple[DeviceMemory, ...] = ()
    max_total_tokens: int | None = None
    mem_fraction_static: float | None = None
    prefill_tokens: int | None = None
    spool_size: int | None = None
    reservoir_size: int | None = None
    swap_pause: SwapPause | None = None

    @property
    def tensor_parallel(self) -> int:
        """GPUs that one copy of the target is spread over; 1 on a CPU."""
        return max(1, len(self.serve.gpus))

    @property
    def trainer(self) -> str:
        """Where the draft is trained: 'off', 'cpu', 'own' (a GPU of its own) or 'shared' (one that serves too)."""
        if self.train is None:
            return "off"
        if not self.train.gpus:
            return "cpu"
        return "shared" if set(self.train.gpus) & set(self.serve.gpus) else "own"

    @property
    def shared_memory(self) -> int:
        """Bytes of a serving GPU that are planned for a trainer, besides its context; 0 where none trains there."""
        shared = self.train.gpus if self.train and self.trainer == "shared" else ()
        parts = (part for device in self.memory if device.gpu in shared for part in device.parts)
        return total(part for part in parts if part.owner == "trainer" and part.name not in EARLY_PARTS)
