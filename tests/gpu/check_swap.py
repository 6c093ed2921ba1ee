"""A swap of the full-size draft under a captured graph: in place, nothing moves, the new weights answer; and its pause.

DraftSwap and DraftStore are the product's; the model is gpu_draft.py's stand-in for SGLang's, which the worker holds at
`draft_worker.draft_runner.model`, beside `hot_token_id` (sglang 0.5.23, speculative/eagle_worker_v2.py, init_lm_head).
The handler is called as managers/scheduler_components/internal_state.py, set_internal_state, calls it: validate, then
apply, both on the scheduler's thread between two rounds. The graph is replayed on the forward stream, the copies run on
the current one, as in the scheduler, and are ordered by the copies' own waits. A replay that was launched before a swap
and has not begun must still answer with the draft of before: _load waits for it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from gpu_device import Device, Graph
from gpu_draft import ServedDraft, published_config, random_tensors
from gpu_loop import ForwardLoop, LoopSize, RoundGraphs
from published import publish_tensors
from torch import Tensor

from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocabulary_ids
from tide_cli.engine.plugin.swap import DraftSwap
from tide_cli.targets.shape import TargetShape

_ROWS = 32


def run(
    device: Device, target: TargetShape, size: LoopSize, folder: Path, swaps: int = 7
) -> tuple[dict[str, object], list[str]]:
    """(figures, faults)."""
    dtype = torch.bfloat16
    store, config = DraftStore(folder / "drafts"), published_config(target)
    made = [random_tensors(target, seed, device.place, dtype) for seed in (0, 1)]
    for seed, tensors in enumerate(made):
        publish_tensors(store, folder / f"made-{seed}", tensors, config, dtype)
    model = ServedDraft(config, device.place, dtype)
    model.load_weights(made[0].items())
    hot_token_id = vocabulary_ids(made[0]["d2t"]).to(device.place)
    worker = SimpleNamespace(draft_runner=SimpleNamespace(model=model), hot_token_id=hot_token_id)
    swap = DraftSwap(SimpleNamespace(draft_worker=worker), SimpleNamespace(served_version=0, drafts=store.root))

    aux = torch.randn(_ROWS, 3 * target.hidden_size, device=device.place).to(dtype)
    embeds = torch.randn(_ROWS, target.hidden_size, device=device.place).to(dtype)

    def propose(model: ServedDraft = model, ids: Tensor = hot_token_id) -> dict[str, Tensor]:
        logits = model(aux, embeds)
        return {"logits": logits, "tokens": ids[logits.argmax(-1)]}

    device.synchronize()  # what was made above is there for every stream
    wanted = _wanted(device, made, config, dtype, propose)
    graph = device.pool().capture(propose)
    places = [tensor.data_ptr() for tensor in (*model.parameters(), hot_token_id)]
    faults, pauses, validations = [], [], []
    if all(torch.equal(wanted[0][name], wanted[1][name]) for name in wanted[0]):
        faults.append("both drafts answer alike: the check cannot tell them apart")
    for number in range(swaps + 1):
        version = number % 2
        if number:
            begun = time.perf_counter()
            swap._validate("tide_draft", float(version))
            validations.append(time.perf_counter() - begun)
            running = _launch_late(device, graph) if number == 1 else None
            swap._apply("tide_draft", float(version))
            if running:  # the swap has waited for it: its pause is none to be counted, and it was the first one anyway
                faults += _differences(running, wanted[1 - version], 1 - version, 1 - version)
            else:
                pauses.append(swap.state()["swap_seconds"])
        with device.forward():
            graph.replay()
        device.synchronize()
        faults += _differences(graph.outputs, wanted[version], swap.version, version)
    if places != [tensor.data_ptr() for tensor in (*model.parameters(), worker.hot_token_id)]:
        faults.append("a tensor has moved")

    rounds, wrong = _while_it_reads(device, size, swap)
    faults += wrong
    copied = sum(tensor.nbytes for name, tensor in made[0].items() if name != "t2d")
    pause = statistics.median(pauses)
    rates = {kind: _copy_rate(device, copied, pinned=kind == "pinned") for kind in ("pageable", "pinned")}
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "planned_parameters": target.usual_draft.parameters,
        "bytes": copied,
        "swaps": len(pauses),
        "pause_ms": round(pause * 1e3, 2),
        "pause_ms_range": [round(min(pauses) * 1e3, 2), round(max(pauses) * 1e3, 2)],
        "gb_s": round(copied / pause / 1e9, 2),
        "estimated_ms": {kind: round(copied / rate * 1e3, 2) for kind, rate in rates.items()},
        "copy_gb_s": {kind: round(rate / 1e9, 2) for kind, rate in rates.items()},
        "validation_ms": round(statistics.median(validations) * 1e3, 1),
        **rounds,
    }, faults


def _while_it_reads(device: Device, size: LoopSize, swap: DraftSwap) -> tuple[dict[str, object], list[str]]:
    """Rounds go on while a thread reads the next draft and page-locks it: the longest time between two launches."""
    loop = ForwardLoop(device, size, RoundGraphs(device, size, draft_first=True))
    version = 1 - swap.version
    loop.run(20)  # memory of every size is there
    alone = max(_gap(loop) for _ in range(200))
    longest, rounds, begun = 0.0, 0, time.perf_counter()
    swap._prepare(version)
    while swap.state()["prepared"] is None and swap.state()["refusal"] is None and time.perf_counter() - begun < 60:
        longest, rounds = max(longest, _gap(loop)), rounds + 1
    took = time.perf_counter() - begun
    device.synchronize()
    figures = {
        "prepare_s": round(took, 3),
        "rounds_while_preparing": rounds,
        "longest_gap_ms": {"alone": round(alone * 1e3, 2), "while_preparing": round(longest * 1e3, 2)},
    }
    ready = swap.state()["prepared"] == version
    return figures, [] if ready else [f"version {version} was not prepared: {swap.state()['refusal']}"]


def _gap(loop: ForwardLoop) -> float:
    """Seconds that one round takes the scheduler's thread."""
    begun = time.perf_counter()
    loop.run(1)
    return time.perf_counter() - begun


def _wanted(device: Device, made: list[dict[str, Tensor]], config: dict, dtype: torch.dtype, propose) -> list[dict]:
    """What each draft answers, by a model of its own that was never swapped, without a graph."""
    answers = []
    for tensors in made:
        model = ServedDraft(config, device.place, dtype)
        model.load_weights(tensors.items())
        with device.forward():
            answers.append(propose(model, vocabulary_ids(tensors["d2t"]).to(device.place)))
        device.synchronize()
    return answers


def _launch_late(device: Device, graph: Graph) -> dict[str, Tensor]:
    """What a replay gives that is launched now and begins a tenth of a second later, on CUDA."""
    with device.forward():
        if device.kind == "cuda":
            torch.cuda._sleep(200_000_000)  # cycles
        graph.replay()
        return {name: tensor.clone() for name, tensor in graph.outputs.items()}


def _differences(found: dict[str, Tensor], wanted: dict[str, Tensor], served: int, version: int) -> list[str]:
    faults = [] if served == version else [f"version {served} is served, not {version}"]
    apart = float((found["logits"].float() - wanted["logits"].float()).abs().max())
    limit = 0.02 * float(wanted["logits"].float().abs().max())  # a graph may multiply by another kernel
    if apart > limit:
        faults.append(f"after the swap to {version} the graph's logits are {apart:.3f} from the draft's own")
    agree = float((found["tokens"] == wanted["tokens"]).float().mean())
    if agree < 0.9:  # two nearly equal logits may change places
        faults.append(f"after the swap to {version} {1 - agree:.0%} of the tokens are not the draft's own")
    return faults


def _copy_rate(device: Device, size: int, *, pinned: bool) -> float:
    """Bytes a second from host memory into a tensor that is there; the best of three."""
    source = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned and device.kind == "cuda")
    target = torch.zeros(size, dtype=torch.uint8, device=device.place)
    best = float("inf")
    for _ in range(3):
        device.synchronize()
        begun = time.perf_counter()
        target.copy_(source)
        device.synchronize()
        best = min(best, time.perf_counter() - begun)
    return size / best
