"""Threads beside the scheduler's that leave its compute threads alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


def start_side_thread(name: str, target: Callable[..., None], *args: Any) -> None:
    """Start a daemon thread in which torch computes on that thread alone.

    libgomp makes a team of compute threads for every thread that opens a parallel region, and keeps it. With more
    compute threads than cores all of them, the scheduler's too, stop spinning and sleep at each barrier: one cast of a
    prefill's states made decoding on two cores slower by a third, for good.
    """

    def run() -> None:
        torch.set_num_threads(1)  # of the calling thread
        target(*args)

    threading.Thread(target=run, name=name, daemon=True).start()
