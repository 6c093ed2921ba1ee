"""The writer's calls with no reader, a slow one and a stopped one: it must wait for none of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

from tide_cli.bench.spool_stores import SpoolStore
from tide_cli.bench.spool_traffic import Traffic
from tide_cli.errors import TideError

READERS = ("absent", "slow", "stopped")


def writer_calls(
    spool: SpoolStore, traffic: Traffic, rate: float, seconds: float, tick: Callable[[float], None]
) -> dict[str, dict[str, float]]:
    """{reader: {"p50", "p99"}}, milliseconds of the writer's calls (put_forward and finish) at `rate` tokens a second.

    seconds: of measuring, for the readers of READERS one after the other; at least one pass of `traffic` each.
    TideError where the reader's process does not get to read.
    """
    return {
        name: _calls(spool, traffic, rate, seconds / len(READERS), place * seconds / len(READERS), name, tick)
        for place, name in enumerate(READERS)
    }


def _calls(
    spool: SpoolStore,
    traffic: Traffic,
    rate: float,
    seconds: float,
    before: float,
    reader: str,
    tick: Callable[[float], None],
) -> dict[str, float]:
    calls: list[float] = []
    with nullcontext() if reader == "absent" else _reading(spool.folder, reader):
        begun, tokens = time.monotonic(), 0
        while not calls or time.monotonic() - begun < seconds:  # whole passes: no request is left running
            for forward, spent in spool.put(traffic, finished=calls.append):
                calls.append(spent)
                tokens += forward.rows
                time.sleep(max(0.0, begun + tokens / rate - time.monotonic()))
            tick(before + min(seconds, time.monotonic() - begun))
    p50, p99 = np.percentile(calls, (50, 99)) * 1e3
    return {"p50": float(p50), "p99": float(p99)}


@contextmanager
def _reading(folder: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """A process that reads the spool in `folder` as `how` says, until the block ends."""
    command = [sys.executable, "-m", "tide_cli.bench.spool_reader", str(folder), how, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "reading\n":
                raise TideError("the reader of the benchmark ended early", remedy="what it said stands above")
            if how == "stopped":
                os.waitpid(process.pid, os.WUNTRACED)
            yield process
        finally:
            process.kill()
