"""What a person sees while the demo runs: a live picture on a terminal, else plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tide_cli.dashboard.status import render_status
from tide_cli.dashboard.words import clock, count, duration
from tide_cli.demo.traffic import TrafficFigures
from tide_cli.printable import many

_FIGURES_EVERY = 10.0  # seconds between two plain lines of figures
_PANELS = ("engine", "speculation", "adaptation", "events")  # of the appliance below it
_SAID = 6  # lines of the demo's own that stay on the live picture

History = Callable[[], dict[str, Any] | None]


class Screen(AbstractContextManager["Screen"]):
    """phase(), say() and progress() tell what the demo does; update() brings the newest figures."""

    def phase(self, text: str) -> None:
        """A new part of the demo begins."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """A result on the way."""
        raise NotImplementedError

    def progress(self, text: str) -> None:
        """How far the present part has come; may be left out where lines stay."""
        raise NotImplementedError

    def update(self, status: dict[str, Any], traffic: TrafficFigures | None, history: History) -> None:
        """status: the appliance's; traffic: None before and after there is any; history: asks for the appliance's."""
        raise NotImplementedError


def make_screen(console: Console) -> Screen:
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class LiveScreen(Screen):
    """Redraws one picture."""

    def __init__(self, console: Console) -> None:
        self._begun = time.monotonic()
        self._phase = self._progress = ""
        self._said: list[str] = []
        self._status: dict[str, Any] | None = None
        self._traffic: TrafficFigures | None = None
        self._history: dict[str, Any] | None = None
        self._live = Live(
            console=console,
            get_renderable=self._picture,  # drawn anew even while nothing is heard: the clock goes on
            refresh_per_second=2,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def phase(self, text: str) -> None:
        self._phase, self._progress, self._begun = text, "", time.monotonic()
        self._status = None  # of the phase before

    def say(self, text: str) -> None:
        self._said = [*self._said, f"{clock(time.time())}  {text}"][-_SAID:]

    def progress(self, text: str) -> None:
        self._progress = text

    def update(self, status: dict[str, Any], traffic: TrafficFigures | None, history: History) -> None:
        self._status, self._traffic, self._history = status, traffic, history()

    def _picture(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(ratio=1)
        table.add_row("now", Text(self._phase, style="bold"))
        if self._progress:
            table.add_row("", self._progress)
        table.add_row("for", duration(time.monotonic() - self._begun))
        if self._traffic is not None:
            table.add_row("traffic", traffic_words(self._traffic))
        parts: list[RenderableType] = [table, *(Text(line) for line in self._said)]
        panel = Panel(Group(*parts), title="TIDE demo", title_align="left")
        below = [] if self._status is None else [render_status(self._status, time.time(), self._history, _PANELS)]
        return Group(panel, *below)


class PlainScreen(Screen):
    """Lines: what happens, when it happens, and the figures now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_event = 0.0  # unix seconds
        self._last_figures = float("-inf")

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, text: str) -> None:
        self._line(text)

    def say(self, text: str) -> None:
        self._line(f"  {text}")

    def progress(self, text: str) -> None:
        pass

    def update(self, status: dict[str, Any], traffic: TrafficFigures | None, history: History) -> None:
        for event in status["events"]:
            if event["time"] > self._last_event:
                self._last_event = event["time"]
                self._line(f"  {event['text']}".replace("\n", "; "))
        if traffic is not None and time.monotonic() - self._last_figures >= _FIGURES_EVERY:
            self._last_figures = time.monotonic()
            self._line(f"  {traffic_words(traffic)}; {learning_words(status)}")

    def _line(self, text: str) -> None:
        self._console.print(f"{clock(time.time())} {text}", markup=False, highlight=False, soft_wrap=True)


def traffic_words(figures: TrafficFigures) -> str:
    """The traffic in one line."""
    words = [f"{many(figures.answered, 'request')} answered"]
    if figures.failed:
        words.append(f"{count(figures.failed)} failed ({figures.last_failure})")
    if figures.output_tok_s is not None:
        words.append(f"{figures.output_tok_s:.1f} tok/s")
    if figures.acceptance_length is not None:
        words.append(f"acceptance length {figures.acceptance_length:.2f} in the last minute")
    return ", ".join(words)


def learning_words(status: dict[str, Any]) -> str:
    """Capture, training and served draft in one line."""
    captured, training = status["spool"].get("tokens", 0), status["training"]
    words = f"{many(captured, 'token')} captured"
    if training["running"]:
        progress = training["progress"]
        words += ", training"
        if progress:
            words += f" (step {progress.get('step')}, loss {progress.get('loss', 0.0):.2f})"
    served = status["drafts"]["served"]
    return words if served is None else f"{words}, v{served:04d} served"
