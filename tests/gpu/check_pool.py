"""Two graphs in one memory pool: why the capture takes a round's states when verify returns, and not at its end.

SGLang 0.5.23 gives all graphs one pool (sglang/srt/model_executor/runner_utils/pool.py). Where a graph writes in
passing is free for the graphs that are captured after it, and so for the target's outputs. For every number of draft
steps but the first the draft's graph is captured before the target's (speculative/eagle_worker_v2.py,
build_adaptive_runtime_state), and its replay in draft-extend then overwrites the states that verify has left. With the
target's graph captured first (managers/scheduler.py, init_all_cuda_graphs, for the first number of steps) it cannot:
outputs are kept.
"""

from __future__ import annotations

from gpu_device import Device
from gpu_loop import LoopSize, RoundGraphs
from gpu_rows import accepted, wrong_rows
from torch import Tensor

from tide_cli.engine.plugin.staging import HostCopy

_REQUEST, _POSITION = 5, 100


def run(device: Device, size: LoopSize) -> tuple[dict[str, object], list[str]]:
    """(figures, faults). Figures: the share of rows that are wrong, by when they were taken."""
    figures: dict[str, object] = {}
    for draft_first in (True, False):
        order = "draft_captured_first" if draft_first else "target_captured_first"
        figures[order] = _one_order(device, size, draft_first)
    faults = []
    first, second = figures["draft_captured_first"], figures["target_captured_first"]
    if first["taken_after_verify"] or second["taken_after_verify"]:
        faults.append("rows that were taken when verify returned are wrong")
    if not first["taken_after_the_draft"]:
        faults.append("the draft's replay overwrote nothing: the check does not show what it should")
    if second["taken_after_the_draft"]:
        faults.append("kept outputs were overwritten")
    return figures, faults


def _one_order(device: Device, size: LoopSize, draft_first: bool) -> dict[str, object]:
    graphs, staging = RoundGraphs(device, size, draft_first=draft_first), device.staging()
    graphs.requests.fill_(_REQUEST)
    graphs.seq_lens.fill_(_POSITION)
    device.synchronize()
    outputs = graphs.target.outputs
    with device.forward():
        graphs.target.replay()
        at_once = staging.copy(aux=outputs["aux"], final=outputs["final"])
        graphs.draft.replay()
        later = staging.copy(aux=outputs["aux"], final=outputs["final"])
    device.synchronize()
    return {
        "taken_after_verify": _share_wrong(at_once, size),
        "taken_after_the_draft": _share_wrong(later, size),
        "output_bytes_in_the_drafts_scratch": sum(_inside(tensor, graphs.scratch) for tensor in outputs.values()),
        "output_bytes": sum(tensor.nbytes for tensor in outputs.values()),
    }


def _share_wrong(copy: HostCopy, size: LoopSize) -> float:
    """Of the rows that were accepted."""
    host, count = copy.wait(), accepted(_REQUEST, _POSITION, size.width)
    wrong = 0
    for request in range(size.requests):
        rows = slice(request * size.width, request * size.width + count)
        positions = range(_POSITION, _POSITION + count)
        wrong += wrong_rows(host["aux"][rows], host["final"][rows], _REQUEST, positions)
    return round(wrong / (size.requests * count), 4)


def _inside(tensor: Tensor, addresses: range) -> int:
    """Bytes of the tensor that lie in a range of addresses."""
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    return max(0, min(end, addresses.stop) - max(begin, addresses.start))
