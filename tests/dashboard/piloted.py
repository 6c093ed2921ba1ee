"""The dashboard without a terminal: Textual's pilot presses the keys, a recorded moment stands still behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from moments import now, snapshot
from textual.pilot import Pilot

from tide_cli.dashboard.app import TopApp
from tide_cli.dashboard.feed import Feed, Snapshot
from tide_cli.dashboard.orders import Orders
from tide_cli.paths import Paths


class StillFeed(Feed):
    """Has always just heard the same."""

    def __init__(self, moment: str, **status: Any) -> None:
        super().__init__(Path("nowhere"))
        self.answer = snapshot(moment, **status)
        self.silence = 0.0

    @property
    def latest(self) -> Snapshot:
        return replace(self.answer, answered=time.monotonic() - self.silence)

    @latest.setter
    def latest(self, _: Snapshot) -> None:
        pass

    def start(self) -> None:
        pass

    def poll(self) -> None:
        pass


class Taken(Orders):
    """Takes down what is asked for, and answers."""

    def __init__(self, events: list[dict[str, Any]] | None = None) -> None:
        super().__init__(Path("nowhere"), self._answer)
        self.given: list[tuple[str, Any]] = []
        self.events = events or []
        self.failure: Exception | None = None

    def _answer(self, _: Path, method: str, resource: str, body: Any = None, **__: Any) -> Any:
        if method == "GET":
            return self.events
        self.given.append((resource, body))
        if self.failure:
            raise self.failure
        return {"done": f"done: {resource}"}


class Piloted:
    """An app that runs. text(): what is on the screen."""

    def __init__(self, app: TopApp, pilot: Pilot[None], feed: StillFeed) -> None:
        self.app, self.pilot, self.feed = app, pilot, feed

    async def press(self, *keys: str) -> str:
        await self.pilot.press(*keys)
        return await self.text()

    async def text(self) -> str:
        self.app.draw()
        await self.pilot.pause()
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, words: str) -> str:
        """Wait until `words` are on the screen; the test's own timeout is the bound."""
        while words not in (text := await self.text()):
            await asyncio.sleep(0.01)
        return text


def piloted(
    use: Callable[[Piloted], Awaitable[None]],
    moment: str = "healthy",
    size: tuple[int, int] = (120, 40),
    folder: Path = Path("/nowhere"),
    status: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Run `use` on an app at a recorded moment. options: of TopApp."""

    async def run() -> None:
        feed = StillFeed(moment, **(status or {}))
        app = TopApp(Paths.under(folder, folder), feed, clock=lambda: now(moment), **options)
        async with app.run_test(size=size) as pilot:
            await use(Piloted(app, pilot, feed))

    asyncio.run(run())
