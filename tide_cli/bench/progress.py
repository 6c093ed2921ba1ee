"""What a long measurement tells while it runs."""

from __future__ import annotations

from collections.abc import Callable


class Progress:
    """This one says nothing."""

    def say(self, text: str) -> None:
        """A part begins, or has a result."""

    def tick(self, done: float, total: float) -> None:
        """How far it has come, in any unit; may be called often."""


class PassTicks:
    """Tells of each answer of a measurement in passes, of which each counts as much as any other."""

    def __init__(self, progress: Progress, total: int) -> None:
        """total: passes in all. Make it when the first one begins: the remaining time counts from here."""
        self._progress, self._total, self._done = progress, total, 0
        progress.tick(0, total)

    def begin(self, answers: int) -> Callable[[object], None]:
        """The next pass, of so many answers; what is returned wants to be called with each of them."""
        before, come = self._done, 0
        self._done += 1

        def on_answer(answer: object) -> None:
            nonlocal come
            come += 1
            self._progress.tick(before + come / answers, self._total)

        return on_answer
