"""What stands above and below the panels: the appliance in one line, what is wrong with it, and the keys. Pure."""

from __future__ import annotations

from rich.text import Text

from tide_cli.dashboard.view import LONGEST_SILENCE, STATE_STYLES, View, cleaned, fitted, wrapped
from tide_cli.dashboard.words import clock, duration

_ALARMING = 8.0  # seconds of an engine's silence; its panel says so before
_STATES = {"BACKOFF": "has ended and starts again", "FATAL": "is given up", "STOPPING": "is being ended"}


def header(view: View, width: int, frozen: bool = False) -> Text:
    """State, target, address and age on the left, the time on the right."""
    state = str(view.get("state") or "-")
    left = Text.assemble(("TIDE ", "bold"), (state, STATE_STYLES.get(state, "bold cyan")))
    left.append(f"  {cleaned(view.get('target') or '-')}")
    if address := view.get("address"):
        left.append(f"  {address}", "" if state == "READY" else "dim")
    if started := view.get("started"):
        left.append(f"  up {duration(max(0.0, view.now - started))}", "dim")
    right = Text.assemble((" FROZEN " if frozen else "", "reverse"), f" {clock(view.now)}")
    (left,) = fitted([left], max(0, width - right.cell_len), 1, view.ascii)
    left.append(" " * max(0, width - right.cell_len - left.cell_len))
    return fitted([left.append_text(right)], width, 1, view.ascii)[0]


def alarms(view: View, width: int, most: int) -> list[Text]:
    """What a person has to know first; empty where all is well."""
    found: list[tuple[str, str]] = []
    where = view.get("state_dir")
    if view.gone:
        told = f" for {duration(view.silence)}" if view.status else ""
        text = (
            f"No supervisor runs{f' on {where}' if where else ''}{told}; waiting for one. Figures are the last known."
        )
        found.append((text, "bold red"))
    elif view.silence > LONGEST_SILENCE:
        found.append(
            (f"The supervisor has not answered for {duration(view.silence)}. Figures are the last known.", "bold red")
        )
    else:
        found += _engine(view)
    trainer = view.get("children", "trainer") or {}
    if trainer.get("state") in _STATES and view.get("state") not in ("STOPPING", "STOPPED"):
        why = f": {trainer['reason']}" if trainer.get("reason") else ""
        found.append((f"The trainer {_STATES[trainer['state']]}; serving goes on{why}", "yellow"))
    found += [(note, "yellow") for note in view.get("notes") or []]
    shown = [(text, style) for text, style in found if text]
    lines = [line for text, style in shown for line in wrapped(text, max(1, width), 2, style)]
    return fitted(lines, width, most, view.ascii)


def _engine(view: View) -> list[tuple[str, str]]:
    engine, state = view.get("children", "engine") or {}, view.get("state")
    why = f": {engine['reason']}" if engine.get("reason") else ""
    if state in ("STOPPING", "STOPPED", "FATAL"):
        words = {"STOPPING": "is ending", "STOPPED": "has ended", "FATAL": "has failed"}[state]
        reason = view.get("reason")
        return [
            (f"The appliance {words}{f': {reason}' if reason else ''}", "bold red" if state == "FATAL" else "yellow")
        ]
    if engine.get("state") in _STATES:
        return [(f"The engine {_STATES[engine['state']]}{why}", "bold red")]
    if engine.get("state") == "DEGRADED":
        return [(f"The engine is not well{why}", "bold yellow")]
    if engine.get("state") == "STARTING" and engine.get("starts", 0) > 1:
        return [(f"The engine is starting again{why}", "bold yellow")]
    if view.engine_silence > _ALARMING:
        return [(f"The engine has not answered for {duration(view.engine_silence)}", "bold red")]
    return []


def keys(pairs: list[tuple[str, str]], width: int, ascii: bool) -> Text:
    """As many of (key, what it does) as there is room for, the first ones first."""
    line = Text()
    for key, what in pairs:
        item = Text.assemble((key, "bold cyan"), f" {what}")
        if line.cell_len + item.cell_len + 2 > width and line:
            break
        line.append("  " if line else "").append_text(item)
    return fitted([line], width, 1, ascii)[0]
