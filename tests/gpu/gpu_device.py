"""The device under the checks: a CUDA device, or this processor in its place, to try the checks themselves.

What mirrors what, in SGLang 0.5.23 (paths below sglang/srt):

    here                  there
    CudaPool.__init__     model_executor/runner_utils/pool.py, get_or_create_global_graph_memory_pool and
                          get_or_create_global_graph_capture_stream: one pool and one stream for target and draft
    CudaPool.capture      model_executor/runner_backend/full_cuda_graph_backend.py, capture_one: two eager warm-ups
                          between synchronisations, then torch.cuda.graph(pool, stream); the outputs are kept
    Graph.replay          the same file, replay: the outputs are the very tensors of the capture
    CudaDevice.forward    managers/scheduler.py, forward_stream_ctx in run_batch: all of a round is launched there
    CudaDevice.to_host    managers/scheduler.py, _copy_result_to_cpu, and managers/utils.py, copy_to_cpu: a copy stream
                          waits for the forward stream; who processes the result waits for the event behind the copy

On the processor a graph is a plain function whose outputs are written in place at each replay, and what a shared pool
does is played: a replay overwrites the outputs of every graph that was captured after it, because these may lie in its
scratch memory. Times of such a run say nothing about any GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tide_cli.engine.plugin.staging import HostCopy, Staging

Outputs = dict[str, Tensor]


@dataclass(frozen=True)
class Graph:
    """outputs: the same tensors, at the same addresses, for as long as the graph lives."""

    outputs: Outputs
    replay: Callable[[], object]


class CpuPool:
    """Graphs that share their scratch memory, played."""

    def __init__(self) -> None:
        self._graphs: list[Graph] = []

    def capture(self, function: Callable[[], Outputs]) -> Graph:
        number = len(self._graphs)

        def replay() -> None:
            for name, tensor in function().items():
                graph.outputs[name].copy_(tensor)
            for later in self._graphs[number + 1 :]:
                for tensor in later.outputs.values():
                    tensor.fill_(-1)

        graph = Graph({name: tensor.clone() for name, tensor in function().items()}, replay)
        self._graphs.append(graph)
        return graph


class CpuDevice:
    """This processor. Its streams and events are none: everything is done when it is asked for."""

    kind = "cpu"
    place = torch.device("cpu")

    def describe(self) -> dict[str, object]:
        return {"device": "cpu", "torch": torch.__version__}

    def pool(self) -> CpuPool:
        return CpuPool()

    @contextmanager
    def forward(self) -> Iterator[None]:
        yield

    def synchronize(self) -> None: ...

    def to_host(self, tensor: Tensor) -> HostCopy:
        return HostCopy({"it": tensor.clone()})

    def upload(self, values: list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype)

    def staging(self) -> Staging:
        return CloneStaging()


class CloneStaging(Staging):
    """The product hands a processor's eager tensors over as they are; those of a played graph are written again."""

    def copy(self, **tensors: Tensor | None) -> HostCopy:
        return HostCopy({name: tensor.clone() for name, tensor in tensors.items() if tensor is not None})


class CudaPool:
    def __init__(self) -> None:
        self._handle, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def capture(self, function: Callable[[], Outputs]) -> Graph:
        for _ in range(2):
            torch.cuda.synchronize()
            with torch.cuda.stream(self._stream):
                function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._handle, stream=self._stream):
            outputs = function()
        return Graph(outputs, graph.replay)


class CudaDevice:
    kind = "cuda"
    place = torch.device("cuda")

    def __init__(self) -> None:
        self._forward, self._copy = torch.cuda.Stream(), torch.cuda.Stream()
        self._staging = Staging.for_this_device()

    def describe(self) -> dict[str, object]:
        properties = torch.cuda.get_device_properties(0)
        return {
            "device": properties.name,
            "memory": properties.total_memory,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }

    def pool(self) -> CudaPool:
        return CudaPool()

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Whatever is launched inside runs on the forward stream."""
        with torch.cuda.stream(self._forward):
            yield

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def to_host(self, tensor: Tensor) -> HostCopy:
        """A small result on its way to the host; the forward stream goes on."""
        self._copy.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copy):
            host = tensor.to("cpu", non_blocking=True)
            tensor.record_stream(self._copy)
            event = torch.cuda.Event()
            event.record()
        return HostCopy({"it": host}, event)

    def upload(self, values: list[int], dtype: torch.dtype) -> Tensor:
        """Small integers to the device without a wait."""
        return torch.tensor(values, dtype=dtype, pin_memory=True).to(self.place, non_blocking=True)

    def staging(self) -> Staging:
        """The product's; one for all, as in an engine."""
        return self._staging


Device = CpuDevice | CudaDevice
