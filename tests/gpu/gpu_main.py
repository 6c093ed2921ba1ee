"""Checks of what runs on a GPU alone, with PyTorch and without SGLang: `tests/gpu/run`, in under five minutes.

    capture    the plugin's staging and capture beside a loop that replays CUDA graphs
    pool       two graphs in one memory pool: when the target's states may be taken
    training   optimiser steps and walks of the gpt-oss-120b draft, memory against the plan, the parts of a step that
               several processes take together
    swap       the draft's weights replaced under a captured graph, and the pause

Prints one JSON line for each check, a summary as the last one, and a table on stderr. Exit code 0: all is well, or
there is no CUDA device; 1: a check found a fault, or something was left out for want of a package. What
tests/gpu/requirements.txt names is then to be installed, or `--allow-partial` given. `--device cpu --small` tries the
checks themselves, in small, on this processor: none of its figures is one of a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

TARGET = "gpt-oss-120b"
CHECKS = ("capture", "pool", "training", "swap")
REMEDY = "pip install --no-deps -r tests/gpu/requirements.txt"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="small tensors and few rounds")
    parser.add_argument("--only", choices=CHECKS, action="append", help="one check; may be repeated")
    parser.add_argument("--allow-partial", action="store_true", help="what lacks a package may be left out")
    parser.add_argument("--folder", type=Path, help="where temporary files go: 16 GiB at full size")
    options = parser.parse_args()

    if options.device == "cpu" and not options.small:
        parser.error("--device cpu needs --small")

    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "8")  # as SGLang does, entrypoints/engine.py
    if options.device == "cuda" and (why := _missing()):
        print(json.dumps({"summary": "skipped", "why": why}))
        return 0
    device = _device(options.device)
    about = device.describe() | {"small": options.small, "gpu_figures": options.device == "cuda" and not options.small}
    results = []
    begun = time.monotonic()
    for check in options.only or CHECKS:
        results.append(_run(check, _call(check, device, options.small), options.folder, device))
        print(json.dumps(results[-1] | about), flush=True)
    faults = sum(len(result["faults"]) for result in results)
    left_out = {result["check"]: result["left_out"] for result in results if "left_out" in result}
    word = "failed" if faults else "partial" if left_out else "passed"
    summary = {"summary": word, "faults": faults, "left_out": left_out}
    if left_out:
        summary["remedy"] = REMEDY
    _table(results, about)
    print(json.dumps(summary | {"seconds": round(time.monotonic() - begun, 1)} | about))
    return 1 if faults or (left_out and not options.allow_partial) else 0


def _missing() -> str | None:
    try:
        import torch
    except ModuleNotFoundError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "there is no CUDA device"


def _device(kind: str):
    from gpu_device import CpuDevice, CudaDevice

    return CudaDevice() if kind == "cuda" else CpuDevice()


def _call(check: str, device, small: bool) -> Callable[[Path], tuple[dict, list[str]]]:
    """The check, with its sizes."""
    from gpu_loop import LoopSize

    from tide_cli.targets.known import known_targets

    target = small_target() if small else known_targets()[TARGET].shape
    loop = LoopSize(hidden=64, requests=3, prompt=20, output=24, round_ms=0.0) if small else LoopSize()
    match check:
        case "capture":
            import check_capture

            amount = check_capture.Amount(rounds=60, pairs=2, arm=20, ring=2**24) if small else check_capture.Amount()
            return lambda folder: check_capture.run(device, loop, amount, folder)
        case "pool":
            import check_pool

            return lambda folder: check_pool.run(device, loop)
        case "training":
            import check_training

            sizes = check_training.Amount(batches=((2, 16),), batch_tokens=32, steps=2, ring=2**24)
            return lambda folder: check_training.run(
                device, target, sizes if small else check_training.Amount(), folder
            )
        case _:
            import check_swap

            return lambda folder: check_swap.run(device, target, loop, folder)


def small_target():
    from tide_cli.targets.shape import DraftShape, TargetShape

    return TargetShape(
        layers=6,
        hidden_size=64,
        intermediate_size=96,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab_size=300,
        context_length=256,
        weight_bytes=1,
        draft=DraftShape(64, 96, 4, 2, 16, 120),
    )


def _run(check: str, call: Callable[[Path], tuple[dict, list[str]]], folder: Path | None, device) -> dict:
    """One check's result; whatever goes wrong in it is a fault, and the next one runs."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tide-gpu-", dir=folder) as own:
        try:
            with redirect_stdout(sys.stderr):  # what libraries print
                figures, faults = call(Path(own))
        except Exception as error:
            traceback.print_exc()
            figures, faults = {}, [f"{type(error).__name__}: {error}"]
    gc.collect()
    if device.kind == "cuda":
        import torch

        torch.cuda.empty_cache()
    return {"check": check, "ok": not faults, "faults": faults, "seconds": round(time.monotonic() - begun, 1)} | figures


def _table(results: list[dict], about: dict) -> None:
    out = lambda line: print(line, file=sys.stderr)  # noqa: E731
    note = "" if about["gpu_figures"] else ": none of these is a figure of a GPU at full size"
    out(f"\n{about['device']}, torch {about['torch']}{note}")
    for result in results:
        out(f"\n{result['check']:<12}{'ok' if result['ok'] else 'FAULT'}  ({result['seconds']} s)")
        for name, value in result.items():
            if name not in ("check", "ok", "seconds") and value not in ([], None):
                out(f"  {name.replace('_', ' '):<36}{value}")
