"""How far a command has come, on stderr: a bar with the remaining time on a terminal, nothing elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tide_cli.bench.progress import Progress as Told

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, TaskID

_SPEED_OF = 3600.0  # seconds from whose ticks the bar takes the speed: some are minutes apart


@contextmanager
def progress(words: str) -> Iterator[Callable[[float, float], None]]:
    """Yields a function of (done, total), in any unit; it may be called often."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with _bar(console, *columns) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def narrated(warning: str | None = None) -> Iterator[Told]:
    """For what takes long: lines that stay and, on a terminal, a bar below them with the remaining time.

    warning: said before the first line, which comes when nothing is wrong any more with what was asked for.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn())
    with _bar(console, *columns) as bar:
        task = bar.add_task("", total=None)
        yield _Narrator(bar, task, console, warning)


def _bar(console: Console, *columns: ProgressColumn) -> Bar:
    from rich.progress import Progress

    shown = console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=not shown, speed_estimate_period=_SPEED_OF)


class _Narrator(Told):
    def __init__(self, bar: Bar, task: TaskID, console: Console, warning: str | None) -> None:
        self._bar, self._task, self._console, self._warning = bar, task, console, warning
        self._begun: tuple[float, float] | None = None  # (seconds, done) at the first tick
        self._left = ""

    def say(self, text: str) -> None:
        from tide_cli.dashboard.words import clock

        if self._warning is not None:
            self._console.print(f"tide: {self._warning}", markup=False, highlight=False, soft_wrap=True)
            self._warning = None
        line = f"{clock(time.time())} {text}{self._left if not self._console.is_terminal else ''}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def tick(self, done: float, total: float) -> None:
        self._bar.update(self._task, completed=done, total=total)
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, done
        elif done > self._begun[1]:
            left = (now - self._begun[0]) / (done - self._begun[1]) * max(0.0, total - done)
            self._left = f" ({done / total:.0%}, about {left / 60:.0f} min left)"
