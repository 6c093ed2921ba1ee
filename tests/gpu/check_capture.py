"""The capture beside a loop that replays CUDA graphs: whole rows, no wait on the forward stream, drops instead of
back-pressure, and what it costs.

Staging and Capture are the product's (tide_cli/engine/plugin); the loop is gpu_loop.py, which says what it mirrors.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from gpu_device import Device
from gpu_loop import ForwardLoop, LoopSize, RoundGraphs
from gpu_sink import CopyingWriter, VerifyingWriter, drain, spool_writer, start_capture, stored_rows, waiting

from tide_cli.engine.plugin import capture as plugin

Figures = dict[str, object]


@dataclass(frozen=True)
class Amount:
    """rounds: of the stress. pairs of arms, each of `arm` rounds, with and without capture in turns."""

    rounds: int = 1000
    pairs: int = 8
    arm: int = 150
    ring: int = 4 * 2**30


def run(device: Device, size: LoopSize, amount: Amount, folder: Path) -> tuple[Figures, list[str]]:
    """(figures, faults)."""
    graphs = RoundGraphs(device, size, draft_first=True)
    figures: Figures = {"requests": size.requests, "rows_a_round": size.rows, "row_bytes": 8 * size.hidden}
    faults: list[str] = []
    for part in (_stress, _full_queue, _no_wait, _overhead):
        found, wrong = part(device, ForwardLoop(device, size, graphs), amount, folder)
        figures |= found
        faults += wrong
    return figures, faults


def _stress(device: Device, loop: ForwardLoop, amount: Amount, folder: Path) -> tuple[Figures, list[str]]:
    """Every row is looked at, while the staging stream falls behind again and again."""
    writer = VerifyingWriter()
    staging = device.staging()
    loop.capture = start_capture(writer, staging, folder)
    for done in range(0, amount.rounds, 10):
        loop.run(10)
        if device.kind == "cuda" and done % 50 == 0:
            _delay(staging._stream, 0.02)  # its copies are late: nothing may be reused before them
        drain(loop.capture, most=plugin._QUEUED_BYTES // 8)  # so that nothing is dropped
    device.synchronize()
    drain(loop.capture)
    found: Figures = {"rows_checked": writer.rows, "torn_rows": writer.wrong, "samples": len(writer.complete)}
    faults = [f"{writer.wrong} of {writer.rows} rows are not what they ought to be"] if writer.wrong else []
    if writer.gaps or writer.refused or set(writer.complete) != set(loop.finished):
        lost = len(set(loop.finished) - set(writer.complete))
        faults.append(f"{lost} samples are incomplete, {writer.gaps} parts do not follow, refused: {writer.refused}")
    if not writer.rows:
        faults.append("no row has arrived")
    return found, faults


def _full_queue(device: Device, loop: ForwardLoop, amount: Amount, folder: Path) -> tuple[Figures, list[str]]:
    """Nobody writes: the loop goes on, samples are dropped and counted, memory is bounded; then it captures again."""
    writer = VerifyingWriter()
    loop.capture = start_capture(writer, device.staging(), folder)
    writer.open.clear()
    most, pinned, before = 0, 0, _pinned(device)
    for _ in range(plugin._QUEUED_FORWARDS * 3 // 20):
        loop.run(10)
        most, pinned = max(most, waiting(loop.capture)), max(pinned, _pinned(device) - before)
    device.synchronize()
    loop.restart()
    writer.open.set()  # had the loop waited for this, it would not have come here
    drain(loop.capture)
    dropped = writer.refused.get("queue_full", 0)
    writer.complete, loop.finished = [], {}
    loop.run(2 * loop.size.output)
    drain(loop.capture)
    found: Figures = {"dropped_while_blocked": dropped, "most_bytes_waiting": most, "most_bytes_pinned": pinned}
    faults = [] if dropped else ["nothing was dropped while nobody wrote"]
    # torch's own figure; some MiB more are the loop's, and what is on its way beside the states
    if (held := max(most, pinned - 16 * 2**20)) > plugin._QUEUED_BYTES:
        faults.append(f"{held} bytes of host memory waited, more than the {plugin._QUEUED_BYTES} allowed")
    if writer.wrong:
        faults.append(f"after the drops {writer.wrong} rows are not what they ought to be")
    if not writer.complete:
        faults.append("after the drops nothing is captured any more")
    return found, faults


def _no_wait(device: Device, loop: ForwardLoop, amount: Amount, folder: Path) -> tuple[Figures, list[str]]:
    """On CUDA alone: the scheduler's thread waits for no stream, the forward stream not for the staging stream."""
    if device.kind != "cuda":
        return {"no_wait": None}, []
    staging, faults = device.staging(), []
    loop.capture = start_capture(VerifyingWriter(), staging, folder)
    loop.run(50)  # memory of every size is there
    device.synchronize()
    loop.restart()  # so that the rounds begin with a prefill
    drain(loop.capture)
    torch.cuda.set_sync_debug_mode("error")  # any call of torch that waits raises
    try:
        loop.run(5)
    except RuntimeError as error:
        faults.append(f"a round with capture waits for the device: {error}")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    device.synchronize()
    with device.forward():
        _delay(torch.cuda.current_stream(), 0.2)
        begun = time.perf_counter()
        loop.run(1)
        launched = time.perf_counter() - begun
        after = torch.cuda.Event()
        after.record()
        waited = after.query()
    if waited:
        faults.append("launching a round with capture took until the forward stream was idle")
    device.synchronize()
    _delay(staging._stream, 0.2)
    behind = torch.cuda.Event()
    behind.record(staging._stream)
    loop.run(1)
    with device.forward():
        after = torch.cuda.Event()
        after.record()
    after.synchronize()
    if behind.query():
        faults.append("the forward stream waited for the staging stream")
    device.synchronize()
    drain(loop.capture)
    return {"no_wait": not faults, "launch_us": round(launched * 1e6, 1)}, faults


def _overhead(device: Device, loop: ForwardLoop, amount: Amount, folder: Path) -> tuple[Figures, list[str]]:
    """The same loop with and without capture, in turns; the spool is real where its index's package is there."""
    spool = folder / "spool"
    writer = spool_writer(spool, loop.size.hidden, amount.ring)
    capture = start_capture(writer or CopyingWriter(loop.size.hidden), device.staging(), folder)
    arms: dict[bool, list[float]] = {True: [], False: []}
    allocations, thread = 0, 0.0
    for pair in range(-1, amount.pairs):  # the first one warms up
        for on in (True, False) if pair % 2 else (False, True):
            loop.capture = capture if on else None
            loop.run(5)
            device.synchronize()
            before, spent, begun = _allocations(device), loop.capture_seconds, time.perf_counter()
            loop.run(amount.arm)
            device.synchronize()
            took = (time.perf_counter() - begun) / amount.arm * 1e6
            if pair >= 0:
                arms[on].append(took)
                allocations += _allocations(device) - before if on else 0
                thread += loop.capture_seconds - spent
            loop.restart()
            drain(capture)
    differences = [on - off for on, off in zip(arms[True], arms[False], strict=True)]
    quarters = statistics.quantiles(differences, n=4, method="inclusive")
    found: Figures = {
        "round_us_without": round(statistics.median(arms[False]), 1),
        "round_us_with": round(statistics.median(arms[True]), 1),
        "overhead_us": round(statistics.median(differences), 1),
        "overhead_us_quartiles": [round(quarters[0], 1), round(quarters[2], 1)],
        "overhead_us_range": [round(min(differences), 1), round(max(differences), 1)],
        "thread_us": round(thread / (amount.pairs * amount.arm) * 1e6, 1),  # of the scheduler's, prefills included
        "pairs": amount.pairs,
        "rounds_an_arm": amount.arm,
        "device_allocations": allocations,
        "spool": "the product's" if writer else "none: rows are copied once, as into its pages",
    }
    found["counters"] = capture.counters()
    dropped = {name: count for name, count in capture.counters().items() if name.startswith("dropped_") and count}
    dropped.pop("dropped_aborted", None)  # between two arms
    faults = [f"with capture on some was dropped, which makes it look cheaper: {dropped}"] if dropped else []
    if not writer:
        return found | {"left_out": "the spool's writer: sqlite-utils is not installed"}, faults
    stored = stored_rows(spool)
    found["stored"] = stored
    if stored["wrong"]:
        faults.append(f"{stored['wrong']} stored rows are not what they ought to be")
    return found, faults if stored["samples"] else [*faults, "the spool holds no sample"]


def _delay(stream: torch.cuda.Stream, seconds: float) -> None:
    """Keep a stream busy for about so long."""
    clock = 2e9  # cycles a second, about: what matters is that it is long
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(seconds * clock))


def _pinned(device: Device) -> int:
    """Bytes of host memory that torch has given out and not got back; 0 where it does not say."""
    if device.kind != "cuda" or not hasattr(torch.cuda, "host_memory_stats"):
        return 0
    return torch.cuda.host_memory_stats().get("active_bytes.current", 0)


def _allocations(device: Device) -> int:
    """Calls of cudaMalloc and cudaHostAlloc so far: each of them may stop the device."""
    if device.kind != "cuda":
        return 0
    host = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {}
    return torch.cuda.memory_stats().get("num_device_alloc", 0) + host.get("num_host_alloc", 0)
