"""Lines of rich text as a Textual widget that sends only what has changed; and where each of them stands."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

# two columns where there is room for them, three where there is much; short terminals do without frames
STYLE = """
#head, #foot { height: 1; }
#alarms { display: none; }
#panels { layout: grid; grid-gutter: 0 1; height: 1fr; }
#page { display: none; height: 1fr; }
.panel { border: round ansi_bright_black; padding: 0 1; border-title-color: ansi_cyan; }
.-short .panel { border: none; border-top: solid ansi_bright_black; padding: 0; }
.-usual #panels { grid-size: 2 3; grid-rows: 15fr 11fr 10fr; }
.-usual.-short #panels { grid-rows: 11fr 7fr 4fr; }
.-usual #events { column-span: 2; }
.-wide #panels { grid-size: 3 2; grid-columns: 2fr 3fr 2fr; grid-rows: 3fr 2fr; }
.-wide #events { column-span: 2; }
.-narrow #panels { grid-size: 1; grid-rows: 8; overflow-y: auto; scrollbar-size: 0 0; }
#panels.-alone { grid-size: 1 1; grid-columns: 1fr; grid-rows: 1fr; }
#panels.-alone #events { column-span: 1; }
.-ascii .panel { border: ascii ansi_bright_black; }
.-ascii.-short .panel { border: none; border-top: ascii ansi_bright_black; }
"""

Draw = Callable[[int, int], list[Text]]


class Lines(Widget):
    """draw: from columns and rows to lines that fit into them."""

    ALLOW_SELECT = False

    def __init__(self, draw: Draw, id: str) -> None:
        super().__init__(id=id)
        self._draw = draw
        self._lines: list[Text] = []
        self._strips: list[Strip] = []

    def redraw(self) -> None:
        """Draw anew, and send the lines that differ from those before."""
        width, height = self.size
        if not self.display or not width or not height:
            return
        before, self._lines = self._lines, self._draw(width, height)
        longest = max(len(before), len(self._lines))
        changed = {y for y in range(longest) if _look(before[y : y + 1]) != _look(self._lines[y : y + 1])}
        if changed:
            self._strips = [
                self._strip(line, width) if y in changed else self._strips[y] for y, line in enumerate(self._lines)
            ]
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def on_resize(self) -> None:
        self._lines, self._strips = [], []
        self.redraw()
        self.refresh()

    def _strip(self, line: Text, width: int) -> Strip:
        whole = line.copy()
        whole.stylize_before(whole.style)  # which rich leaves out of a line that has no spans
        return Strip(whole.render(self.app.console)).adjust_cell_length(width)


def _look(lines: list[Text]) -> list[object]:
    """What makes lines differ to the eye; rich's own comparison leaves their style out."""
    return [(line.plain, line.style, line.spans) for line in lines]
