"""A forward loop without a model: rounds as SGLang's overlap schedule launches them, with TIDE's capture in its place.

What mirrors what, in SGLang 0.5.23 (paths below sglang/srt):

    here                there
    ForwardLoop.run     managers/scheduler.py, event_loop_overlap: a round is launched before the result of the one
                        before is processed
    _decode             speculative/eagle_worker_v2.py, forward_batch_generation of a decode round: verify, then
                        draft-extend. load_batch (model_executor/runner/decode_cuda_graph_runner.py) writes the static
                        inputs, the graph is replayed, eagle_sample (speculative/eagle_utils.py) gives
                        accept_lens and new_seq_lens as new tensors, and verify returns: there TIDE's around_verify
                        calls after_forward. The draft's graph comes after that
    _prefill            _forward_prefill_batch of the same file; TIDE's around_forward calls after_forward when the
                        round is over. A prefill is a graph as well: the logits processor behind it joins the aux
                        states anew, and the last states are a part of one buffer, which the next prefill overwrites
                        (model_executor/runner_backend/breakable_cuda_graph_backend.py, capture_one)
    the graphs          the target's gives hidden_states [rows, 3H] and last_hidden_states [rows, H] bfloat16, the
                        draft's is captured before it, as for every number of steps but the first
                        (eagle_worker_v2.py, build_adaptive_runtime_state)
    Finished            managers/scheduler_components/batch_result_processor.py: a request that has ended is noticed one
                        round late, when the next one is already launched

Left out: the schedule stream and the future map, attention and its metadata, sampling, padding of a batch to the next
larger graph. Instead of the model the target's graph multiplies with some weights, to take its time and its share of
the memory's bandwidth.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from gpu_device import Device, Graph, Outputs
from gpu_rows import accepted, token, write_rows
from torch import Tensor

from tide_cli.engine.plugin.capture import Capture
from tide_cli.engine.plugin.captured import Finished, ForwardBatch


@dataclass(frozen=True)
class LoopSize:
    """hidden: H. requests: of a batch, each with `width` rows in verify. prompt, output: tokens of a request, output at
    least. round_ms: what the target's graph should take; 0: only the rows are written."""

    hidden: int = 2880
    requests: int = 32
    width: int = 4
    prompt: int = 256
    output: int = 256
    round_ms: float = 5.0
    weight: int = 8640  # columns of each weight that the target's graph reads
    weights: int = 16

    @property
    def rows(self) -> int:
        return self.requests * self.width


class Mode:
    """As much of SGLang's ForwardMode as the capture asks for."""

    def __init__(self, extend: bool) -> None:
        self._extend = extend

    def is_idle(self) -> bool:
        return False

    def is_extend(self) -> bool:
        return self._extend


class RoundGraphs:
    """The target's graph and the draft's in one pool, and their static inputs. draft_first: the order of capture."""

    def __init__(self, device: Device, size: LoopSize, *, draft_first: bool) -> None:
        self._size = size
        make = {"dtype": torch.int32, "device": device.place}
        self.requests, self.seq_lens = torch.zeros(size.requests, **make), torch.zeros(size.requests, **make)
        self._slots = torch.arange(size.width, **make)
        wide = {"dtype": torch.bfloat16, "device": device.place}
        self._states = torch.zeros(size.rows, size.hidden, **wide)
        self._weights = [
            torch.zeros(size.hidden, size.weight, **wide) for _ in range(size.weights if size.round_ms else 0)
        ]
        self.scratch = range(0)  # addresses that the draft's graph writes in passing
        passes = self._passes(device)
        pool = device.pool()
        target = lambda: self._target(passes)  # noqa: E731
        if draft_first:
            self.draft, self.target = pool.capture(self._draft), pool.capture(target)
        else:
            self.target, self.draft = pool.capture(target), pool.capture(self._draft)

    def _passes(self, device: Device) -> int:
        """How often the weights are read so that the target's graph takes about `round_ms`."""
        if not self._weights:
            return 0
        graph = device.pool().capture(lambda: self._target(4))
        took = milliseconds(device, graph, 20) / 4
        return max(1, round(self._size.round_ms / took))

    def _target(self, passes: int) -> Outputs:
        size = self._size
        for _ in range(passes):
            for weight in self._weights:
                torch.mm(self._states, weight)
        positions = (self.seq_lens[:, None] + self._slots).flatten()
        requests = self.requests[:, None].expand(-1, size.width).flatten()
        limits = accepted(self.requests, self.seq_lens, size.width)
        rejected = (self._slots >= limits[:, None]).int().flatten()
        aux, final = write_rows(requests, positions, rejected, size.hidden)
        return {"aux": aux, "final": final}

    def _draft(self) -> Outputs:
        # large enough for whatever the target's graph takes: its outputs come to lie in here, if they may
        size = self._size
        scratch = torch.full((2 * size.rows, 32 * size.hidden), -1.0, dtype=torch.bfloat16, device=self._states.device)
        self.scratch = range(scratch.data_ptr(), scratch.data_ptr() + scratch.nbytes)
        return {"token": scratch[0, :1].clone()}


def milliseconds(device: Device, graph: Graph, times: int) -> float:
    """Of one replay, from `times` of them in a row."""
    with device.forward():
        graph.replay()
        device.synchronize()
        begun = time.perf_counter()
        for _ in range(times):
            graph.replay()
        device.synchronize()
    return (time.perf_counter() - begun) * 1000 / times


@dataclass
class Slot:
    """One request of the batch as the host knows it; `length` is one round behind the device."""

    request: int
    length: int
    ends_at: int


class ForwardLoop:
    """The scheduler's thread. capture: TIDE's, None for the same loop without it. finished: tokens by request.

    capture_seconds: that this thread has spent in the capture.
    """

    def __init__(self, device: Device, size: LoopSize, graphs: RoundGraphs) -> None:
        self.device, self.size, self.graphs = device, size, graphs
        self.capture: Capture | None = None
        self.capture_seconds = 0.0
        self.finished: dict[str, int] = {}
        self._next = 1
        self._slots: list[Slot | None] = []
        rows = size.requests * size.prompt
        self._prefilled = torch.empty(rows, size.hidden, dtype=torch.bfloat16, device=device.place)
        self.restart()

    def restart(self) -> None:
        """Abort the requests that run: the next round begins with new ones."""
        size = self.size
        for slot in self._slots:
            if slot and self.capture:
                self.capture._put(Finished(name(slot.request), [], size.prompt, 0, 1, 0, aborted=True))
        self._slots = [None] * size.requests
        self._results: deque = deque()
        make = {"dtype": torch.int32, "device": self.device.place}
        with self.device.forward():
            self.requests, self.seq_lens = torch.zeros(size.requests, **make), torch.zeros(size.requests, **make)

    def run(self, rounds: int) -> None:
        with self.device.forward():
            for _ in range(rounds):
                empty = [i for i, slot in enumerate(self._slots) if slot is None]
                if empty:
                    self._prefill(empty)
                self._results.append(self._decode())
                if len(self._results) > 1:
                    self._process()

    def _prefill(self, places: list[int]) -> None:
        size, started = self.size, []
        for i in places:
            slot = Slot(self._next, size.prompt, size.prompt + size.output + self._next % 17)
            self._slots[i], self._next = slot, self._next + 1
            started.append(slot)
        numbers = [slot.request for slot in started]
        batch = SimpleNamespace(
            forward_mode=Mode(extend=True),
            is_extend_in_batch=True,
            reqs=[_req(number, size.prompt) for number in numbers],
            prefix_lens=[0] * len(started),
            extend_lens=[size.prompt] * len(started),
        )
        before = self._before(batch)
        device_numbers = self.device.upload(numbers, torch.int32)
        requests = device_numbers[:, None].expand(-1, size.prompt).flatten()
        positions = torch.arange(size.prompt, dtype=torch.int32, device=self.device.place).repeat(len(started))
        aux, final = write_rows(requests, positions, torch.zeros_like(positions), size.hidden)
        final = self._prefilled[: len(final)].copy_(final)
        chosen = self.device.upload(places, torch.int64)
        self.requests = self.requests.index_copy(0, chosen, device_numbers)
        self.seq_lens = self.seq_lens.index_fill(0, chosen, size.prompt)
        self._after(before, aux, final, None)

    def _decode(self):
        reqs = [_req(slot.request, 0) for slot in self._slots if slot]
        batch = SimpleNamespace(
            forward_mode=Mode(extend=False), is_extend_in_batch=False, reqs=reqs, seq_lens=self.seq_lens
        )
        before = self._before(batch)
        self.graphs.requests.copy_(self.requests)
        self.graphs.seq_lens.copy_(self.seq_lens)
        self.graphs.target.replay()
        outputs = self.graphs.target.outputs
        accept_lens = accepted(self.requests, self.seq_lens, self.size.width)
        self.seq_lens = self.seq_lens + accept_lens
        self._after(before, outputs["aux"], outputs["final"], accept_lens)
        self.graphs.draft.replay()
        return [slot.request for slot in self._slots if slot], self.device.to_host(accept_lens)

    def _before(self, batch: SimpleNamespace) -> ForwardBatch | None:
        if self.capture is None:
            return None
        begun = time.perf_counter()
        before = self.capture.before_forward(batch)
        self.capture_seconds += time.perf_counter() - begun
        return before

    def _after(self, before: ForwardBatch | None, aux: Tensor, final: Tensor, accept_lens: Tensor | None) -> None:
        if self.capture is None:
            return
        logits = SimpleNamespace(hidden_states=aux, last_hidden_states=final)
        begun = time.perf_counter()
        self.capture.after_forward(before, SimpleNamespace(logits_output=logits, accept_lens=accept_lens))
        self.capture_seconds += time.perf_counter() - begun

    def _process(self) -> None:
        launched, copy = self._results.popleft()
        for i, (request, count) in enumerate(zip(launched, copy.wait()["it"].tolist(), strict=True)):
            slot = self._slots[i]
            if slot is None or slot.request != request:
                continue  # it had ended when this round was launched
            slot.length += count
            if slot.length >= slot.ends_at:
                self._finish(slot)
                self._slots[i] = None

    def _finish(self, slot: Slot) -> None:
        tokens = [token(slot.request, position) for position in range(slot.length + 1)]  # the last one has no row
        self.finished[name(slot.request)] = slot.length
        if self.capture:
            done = Finished(name(slot.request), tokens, self.size.prompt, 0, 1, 0, aborted=False)
            self.capture._put(done)  # after_result reads it from a request of SGLang's


def name(request: int) -> str:
    return f"r{request}"


def _req(request: int, prompt: int) -> SimpleNamespace:
    ids = lambda: token(request, np.arange(prompt, dtype=np.int64))  # noqa: E731
    return SimpleNamespace(rid=name(request), get_fill_ids=ids)
