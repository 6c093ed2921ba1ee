"""`tide top`: the panels in a terminal, drawn from what the supervisor says, with keys for a few orders.

A client of the control socket: whatever becomes of it, nothing changes for the engine.
"""

from __future__ import annotations

import asyncio
import re
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Container

from tide_cli.dashboard.edges import alarms, header, keys
from tide_cli.dashboard.feed import Feed
from tide_cli.dashboard.keys import key_table
from tide_cli.dashboard.orders import ORDER_WITHIN, Orders
from tide_cli.dashboard.pages import LOGS, help_page, log_page
from tide_cli.dashboard.panels import PANELS, Panel
from tide_cli.dashboard.view import View, fitted
from tide_cli.dashboard.widgets import STYLE, Lines
from tide_cli.dashboard.words import version
from tide_cli.errors import TideError
from tide_cli.paths import Paths

_LOOK_EVERY = 0.5  # seconds between two looks for news
_DRAW_EVERY = 1.0  # seconds after which is drawn anew without any: clocks and silences go on
_SAID_FOR = 6.0  # seconds that an answer stays
_FONT = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)  # rich's pictures would fetch one from the net


class TopApp(App[None]):
    """paths: of the appliance. interrupt: what Ctrl-C does where that is not to close the dashboard; ends: a file
    descriptor whose end closes it."""

    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-usual"), (150, "-wide")]  # noqa: RUF012  Textual's own shape
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    CSS = STYLE

    def __init__(
        self,
        paths: Paths,
        feed: Feed,
        *,
        readonly: bool = False,
        ascii: bool = False,
        interrupt: Callable[[], None] | None = None,
        ends: int | None = None,
        clock: Callable[[], float] = time.time,
        orders: Orders | None = None,
    ) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self._paths, self._feed, self._orders, self._clock = paths, feed, orders or Orders(paths.socket), clock
        self._readonly, self._ascii, self._interrupt, self._ends = readonly, ascii, interrupt, ends
        self._keys = key_table(attached=interrupt is not None, readonly=readonly)
        self._drawn: tuple[object, float] = (None, 0.0)
        self._frozen: View | None = None
        self._said: tuple[Text, float] | None = None  # and the monotonic second until which it stays
        self._wish: int | None = None  # the version that a rollback would serve, while the question stands
        self._page: str | None = None  # 'help' or the name of a log
        self._back = 0  # lines scrolled back
        self._alone: str | None = None  # the panel that is shown alone

    def compose(self) -> ComposeResult:
        yield Lines(lambda width, _: [header(self._now(), width, self._frozen is not None)], id="head")
        yield Lines(lambda width, height: alarms(self._now(), width, height), id="alarms")
        with Container(id="panels"):
            for panel in PANELS:
                widget = Lines(self._drawing(panel), id=panel.name)
                widget.add_class("panel")
                widget.border_title = f"{panel.key} {panel.title}"
                yield widget
        yield Lines(self._draw_page, id="page")
        yield Lines(self._draw_foot, id="foot")

    def on_mount(self) -> None:
        self.screen.set_class(self._ascii, "-ascii")
        for number in (signal.SIGTERM, signal.SIGHUP, *([] if self._interrupt else [signal.SIGINT])):
            asyncio.get_running_loop().add_signal_handler(number, self.exit)  # so that the terminal is given back
        self._feed.start()
        self.set_interval(_LOOK_EVERY, self._look)

    def on_unmount(self) -> None:
        self._feed.close()

    def _fatal_error(self) -> None:
        """The one who runs the app tells of the error; Textual would print a traceback with every local variable."""
        self._close_messages_no_wait()

    @property
    def failure(self) -> Exception | None:
        """What ended the app, where something did."""
        return self._exception

    # --- drawing

    def _now(self) -> View:
        return self._feed.latest.view(self._clock(), time.monotonic(), self._ascii)

    def _look(self) -> None:
        if self._ends is not None and select.select([self._ends], [], [], 0)[0]:
            self.exit()
            return
        news, at = self._drawn
        if self._feed.latest is not news or time.monotonic() - at >= _DRAW_EVERY - 0.1:
            self.draw()

    def draw(self) -> None:
        """Everything that is on the screen, anew."""
        self._drawn = (self._feed.latest, time.monotonic())
        if self._said is not None and time.monotonic() >= self._said[1]:
            self._said, self._wish = None, None
        if len(self.query(Lines)) < len(PANELS) + 4:  # the screen is not there yet, or is being taken down
            return
        bar = self.query_one("#alarms", Lines)
        wrong = len(alarms(self._now(), self.size.width, 1 if self.size.height < 32 else 3))
        bar.display, bar.styles.height = wrong > 0, wrong
        self.query_one("#panels").display = self._page is None
        self.query_one("#page").display = self._page is not None
        for lines in self.query(Lines):
            lines.redraw()

    def _drawing(self, panel: Panel) -> Callable[[int, int], list[Text]]:
        def draw(width: int, height: int) -> list[Text]:
            view = self._frozen or self._now()
            if panel.name == "events" and self._back:
                self._back = min(self._back, max(0, len(view.events) - height))
                view = replace(view, events=view.events[: len(view.events) - self._back])
            lines = panel.lines(view, width, height)
            if view.stale:
                for line in lines:
                    line.stylize("dim")
            return lines

        return draw

    def _draw_page(self, width: int, height: int) -> list[Text]:
        if self._page == "help":
            return help_page([(key, told) for key, _, told in self._keys], width, height, self._ascii)
        name = self._page or LOGS[0]
        lines, self._back = log_page(self._paths.logs, name, self._back, width, height, self._ascii)
        return lines

    def _draw_foot(self, width: int, _: int) -> list[Text]:
        if self._said is not None:
            return fitted([self._said[0]], width, 1, self._ascii)
        if self._page is not None:
            pairs = [("Esc", "back"), ("l", "next log"), ("↑ ↓", "scroll"), self._keys[0][:2]]
        else:
            pairs = [(key, short) for key, short, _ in self._keys]
        return [keys(pairs, width, self._ascii)]

    def say(self, text: str, style: str = "bold", seconds: float = _SAID_FOR) -> None:
        """A line in the place of the keys, for a while."""
        self._said = (Text(text.replace("\n", "; "), style), time.monotonic() + seconds)
        self.draw()

    # --- keys

    def on_key(self, event: Any) -> None:
        wish, self._wish = self._wish, None
        if wish is not None:
            self._said = None
            if event.key == "y":
                self.say(f"swapping to {version(wish)}", seconds=ORDER_WITHIN)
                self._order(lambda: self._orders.use(wish))
            else:
                self.say("nothing has changed")
            event.stop()
            event.prevent_default()
            return
        actions: dict[str, Callable[[], None]] = {
            "q": self.exit,
            "question_mark": lambda: self._turn(None if self._page == "help" else "help"),
            "escape": self._return,
            "l": self._next_log,
            "f": self._freeze,
            "s": self._save,
            "up": lambda: self._scroll(1),
            "down": lambda: self._scroll(-1),
            "pageup": lambda: self._scroll(self.size.height - 4),
            "pagedown": lambda: self._scroll(4 - self.size.height),
            **{panel.key: partial(self._show_alone, panel.name) for panel in PANELS},
        }
        if not self._readonly:
            actions |= {"p": self._pause, "t": self._train, "r": self._ask_rollback}
        elif event.key in ("p", "t", "r"):
            self.say("read only: this dashboard gives no orders")
        if event.key in actions:
            event.stop()
            actions[event.key]()

    def action_help_quit(self) -> None:
        """Ctrl-C."""
        if self._interrupt is None:
            self.exit()
        else:
            self._interrupt()
            self.say("ending the appliance; Ctrl-C again kills it", "bold yellow")

    def _turn(self, page: str | None) -> None:
        self._page, self._back = page, 0
        self.draw()

    def _return(self) -> None:
        if self._page is None and self._alone is not None:
            self._show_alone(self._alone)
        else:
            self._turn(None)

    def _next_log(self) -> None:
        follows = LOGS.index(self._page) + 1 if self._page in LOGS else 0
        self._turn(LOGS[follows] if follows < len(LOGS) else None)

    def _show_alone(self, name: str) -> None:
        self._alone = None if self._alone == name else name
        for panel in PANELS:
            self.query_one(f"#{panel.name}").display = self._alone in (None, panel.name)
        self.query_one("#panels").set_class(self._alone is not None, "-alone")
        self._turn(None)

    def _scroll(self, lines: int) -> None:
        self._back = max(0, self._back + lines)
        self.draw()

    def _freeze(self) -> None:
        self._frozen = None if self._frozen else self._now()
        self.draw()

    def _save(self) -> None:
        path = Path(time.strftime("tide-top-%Y%m%d-%H%M%S.svg", time.localtime(self._clock()))).absolute()
        try:
            path.write_text(self.picture())
        except OSError as error:
            self.say(f"cannot write {path}: {error.strerror}", "bold red")
        else:
            self.say(f"saved {path}")

    def picture(self) -> str:
        """The screen as SVG, which asks for nothing from outside."""
        return _FONT.sub("\n", self.export_screenshot(title="tide top", simplify=True))

    # --- orders

    def _pause(self) -> None:
        paused = bool(self._now().get("training", "paused"))
        self._order(lambda: self._orders.pause(not paused))

    def _train(self) -> None:
        self._order(self._orders.train)

    def _order(self, give: Callable[[], str]) -> None:
        def order() -> str:
            done = give()
            self._feed.poll()  # so that the same key again sees what this one has done
            return done

        self._aside(order, lambda done: self.say(done, "bold green"))

    def _ask_rollback(self) -> None:
        served = self._now().get("drafts", "served")

        def question(before: int | None) -> None:
            if before is None:
                self.say("there is no version to go back to")
                return
            self._wish = before
            self.say(
                f"Serve {version(before)} again instead of {version(served)}?  y yes, any other key no", seconds=30
            )

        self._aside(lambda: self._orders.before(served), question)

    def _aside(self, question: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Ask on a thread of its own; its answer, or what went wrong, comes back into the app."""

        def run() -> None:
            try:
                tell = partial(then, question())
            except TideError as error:
                tell = partial(self.say, "; ".join(error.lines()), "bold red")
            with suppress(RuntimeError):  # the app has ended meanwhile
                self.call_from_thread(tell)

        threading.Thread(target=run, name="order", daemon=True).start()
