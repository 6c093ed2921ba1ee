"""The newest events, the latest at the bottom."""

from __future__ import annotations

from rich.text import Text

from tide_cli.dashboard.view import View, cleaned, fitted
from tide_cli.dashboard.words import clock

_STYLES = {
    "swap": "green",
    "published": "green",
    "ready": "green",
    "rollback": "yellow",
    "doubt": "yellow",
    "drift": "yellow",
    "degraded": "yellow",
    "backoff": "yellow",
    "broken": "red",
    "fatal": "red",
    "trainer_fatal": "red",
}


def lines(view: View, width: int, height: int) -> list[Text]:
    newest = list(view.events)[-height:] if height > 0 else []
    if not newest:
        return fitted([Text("none yet", "dim")], width, height, view.ascii)
    found = [
        Text.assemble((f"{clock(event['time'])}  ", "dim"), (cleaned(event["text"]), _STYLES.get(event["kind"], "")))
        for event in newest
    ]
    return fitted(found, width, height, view.ascii)
