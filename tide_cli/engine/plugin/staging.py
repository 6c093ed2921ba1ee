"""From the device to host memory without a wait on the stream that computes.

On CUDA the outputs of a graph are overwritten by its next replay, so they are cloned on the forward stream; a side
stream then copies the clones to pinned memory, and the reader waits for the event behind that copy.
"""

from __future__ import annotations

import torch


class HostCopy:
    """Tensors on their way to the host; wait() returns them once they are there."""

    def __init__(self, tensors: dict[str, torch.Tensor], event=None) -> None:
        self._tensors = tensors
        self._event = event

    def wait(self) -> dict[str, torch.Tensor]:
        if self._event is not None:
            self._event.synchronize()
        return self._tensors


class Staging:
    """On a CPU the tensors of an eager forward are nobody else's: they are handed over as they are."""

    @staticmethod
    def for_this_device() -> Staging:
        return CudaStaging() if torch.cuda.is_available() else Staging()

    def copy(self, **tensors: torch.Tensor | None) -> HostCopy:
        """Start copying; None values are left out."""
        return HostCopy({name: tensor for name, tensor in tensors.items() if tensor is not None})

    @staticmethod
    def host_bytes(*tensors: torch.Tensor) -> int:
        """Bytes of host memory that a copy of these holds."""
        return sum(tensor.nbytes for tensor in tensors)


class CudaStaging(Staging):
    @staticmethod
    def host_bytes(*tensors: torch.Tensor) -> int:
        """Each is rounded up to a power of two by torch 2.13's allocator of pinned memory (CachingHostAllocator.h)."""
        return sum(1 << (tensor.nbytes - 1).bit_length() for tensor in tensors if tensor.nbytes)

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()

    def copy(self, **tensors: torch.Tensor | None) -> HostCopy:
        forward_stream = torch.cuda.current_stream()
        if self._stream == forward_stream:  # torch gives its few streams out in turns
            self._stream = torch.cuda.Stream()
        own = {name: tensor.clone() for name, tensor in tensors.items() if tensor is not None}
        self._stream.wait_stream(forward_stream)
        host = {}
        with torch.cuda.stream(self._stream):
            for name, tensor in own.items():
                # pinned blocks come from torch's caching host allocator: reused, not allocated, after the first rounds
                host[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                host[name].copy_(tensor, non_blocking=True)
                tensor.record_stream(self._stream)
            event = torch.cuda.Event(blocking=True)  # whoever waits for it sleeps; else it would keep a core busy
            event.record(self._stream)
        return HostCopy(host, event)
