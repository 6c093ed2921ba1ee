"""A status that redraws itself while something else runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live

from tide_cli.dashboard.status import render_status

_PER_SECOND = 2  # redraws: more would be felt on a small machine


@contextmanager
def live_status(console: Console, status: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Shows status() until the block ends; its last state stays on the screen."""
    with Live(
        console=console,
        get_renderable=lambda: render_status(status(), time.time(), hint="Ctrl-C ends it"),
        refresh_per_second=_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield
