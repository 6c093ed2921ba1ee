"""What a long measurement tells while it runs."""

from __future__ import annotations


class Progress:
    """This one says nothing."""

    def say(self, text: str) -> None:
        """A part begins, or has a result."""

    def tick(self, done: float, total: float) -> None:
        """How far it has come, in any unit; may be called often."""
