"""Moving a running process to other cores."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress


def keep_to(cores: Collection[int], pid: int | None = None) -> None:
    """Bind every thread of process `pid`, of this one by default; what they start later inherits it.

    Raises OSError where the process has ended or none of the cores may be used.
    """
    for thread in os.listdir(f"/proc/{pid or os.getpid()}/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
