"""Signals that end a measurement. They interrupt only where that is allowed: no clean-up is ever cut short."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """For the main thread: between enter and exit INT, TERM and HUP are counted; the first may raise KeyboardInterrupt.

    It raises in, or at the beginning of, an `allowed` block, and nowhere else.
    """

    def __init__(self) -> None:
        self.count = 0
        self._allowed = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored on purpose, by nohup for example
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Inside, a signal raises KeyboardInterrupt."""
        self._allowed = True
        try:
            if self.count:
                raise KeyboardInterrupt
            yield
        finally:
            self._allowed = False

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._allowed:
            self._allowed = False
            raise KeyboardInterrupt
