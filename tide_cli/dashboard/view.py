"""What a picture is drawn from, and the few marks that every panel is made of. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from tide_cli.hints import spelt

STATE_STYLES = {
    "READY": "bold green",
    "DEGRADED": "bold yellow",
    "FATAL": "bold red",
    "BACKOFF": "bold yellow",
    "STOPPING": "yellow",
    "STOPPED": "dim",
    "WAITING": "dim",
}
LONGEST_SILENCE = 2.5  # seconds without an answer that are nothing to speak of
LABEL = 11  # columns of the names in front of the figures
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f-\x9f]")
_PLAINER = str.maketrans({"×": "x", "…": "~", "▲": "^", "┊": ":", "│": "|", "─": "-", "█": "#", "░": ".", "–": "-"})


@dataclass(frozen=True)
class View:
    """One moment.

    status: as `GET /v1/status` answers, empty before its first answer; rows, marks: as `GET /v1/history` answers, in
    order of time; events: as `GET /v1/events`; now: unix seconds; silence: seconds since the supervisor's last answer;
    gone: nobody listens on its socket; ascii: draw with ASCII only.
    """

    status: Mapping[str, Any]
    now: float
    rows: Sequence[Mapping[str, Any]] = ()
    marks: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    silence: float = 0.0
    gone: bool = False
    ascii: bool = False

    @property
    def stale(self) -> bool:
        """The figures are of a past that may be over."""
        return self.gone or self.silence > LONGEST_SILENCE

    def get(self, *names: str) -> Any:
        """The figure at status[name][name]…; None where any of them is absent or null."""
        found: Any = self.status
        for name in names:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    @property
    def engine_silence(self) -> float:
        """Seconds since an engine that is up has answered the supervisor; 0 where that is not known."""
        answered = self.get("engine_answered")
        up = self.get("children", "engine", "state") in ("READY", "DEGRADED")
        return max(0.0, self.now - answered) if up and answered is not None and not self.stale else 0.0

    def series(self, name: str) -> list[tuple[float, float]]:
        """(unix seconds, value) of the rows that have one."""
        return [(row["time"], row[name]) for row in self.rows if row.get(name) is not None]


def labelled(label: str, *parts: Text | str | tuple[str, str]) -> Text:
    """One line of a panel: its name, then what it is."""
    return Text.assemble((label.ljust(LABEL), "dim"), *parts)


def bar(share: float | None, width: int) -> Text:
    """A share of 1 as a bar of `width` columns, readable without colours; a dash where it is unknown."""
    if share is None:
        return Text("-")
    full = round(min(1.0, max(0.0, share)) * width)
    return Text.assemble(("█" * full, "cyan"), ("░" * (width - full), "dim"))


def cleaned(text: str) -> str:
    """Text of others on one line: without what would move the cursor or change colours; hints are spelt out."""
    return _UNPRINTABLE.sub("", spelt(text).replace("\n", "; "))


def fitted(lines: Iterable[Text], width: int, height: int, ascii: bool) -> list[Text]:
    """At most `height` lines of at most `width` columns."""
    return [_fit(line, width, ascii) for line in list(lines)[: max(0, height)]]


def _fit(line: Text, width: int, ascii: bool) -> Text:
    if width <= 0:
        return Text()
    line = line.copy()
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    if ascii and not line.plain.isascii():
        # one character for one, so that the styles stay where they are
        line.plain = line.plain.translate(_PLAINER).encode("ascii", "replace").decode()
    return line


def wrapped(text: str, width: int, most: int, style: str = "") -> list[Text]:
    """Words over at most `most` lines; the last of them is cut by `fitted`."""
    lines: list[str] = []
    for word in cleaned(text).split():
        if lines and (len(lines[-1]) + 1 + len(word) <= width or len(lines) == most):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [Text(line, style) for line in lines]
