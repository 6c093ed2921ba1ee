"""What the keys of the dashboard ask of the supervisor; each waits for its answer. TideError where that is no."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tide_cli.drafts.history import served_before
from tide_cli.supervisor.control_client import ask

ORDER_WITHIN = 150.0  # seconds: a swap takes its time


class Orders:
    """To the appliance that listens on `socket`; the answers are words."""

    def __init__(self, socket: Path, ask: Callable[..., Any] = ask) -> None:
        self._socket, self._ask = socket, ask

    def pause(self, pause: bool) -> str:
        """Pause adaptation, or resume it."""
        return self._order("train/pause", {"pause": pause})

    def train(self) -> str:
        """Begin a training cycle."""
        return self._order("train")

    def use(self, version: int) -> str:
        """Serve a version."""
        return self._order("drafts/use", {"version": version})

    def before(self, served: int | None) -> int | None:
        """The version served before this one, as far as the events know."""
        events = self._ask(self._socket, "GET", "/v1/events", timeout=10.0)
        return served_before(events, served)

    def _order(self, resource: str, body: dict[str, Any] | None = None) -> str:
        return str(self._ask(self._socket, "POST", f"/v1/{resource}", body, timeout=ORDER_WITHIN)["done"])
