"""What has been learned and what is being learned: capture, the next or present cycle, the last gate, the drafts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from tide_cli.dashboard.view import LABEL, STATE_STYLES, View, bar, fitted, labelled, wrapped
from tide_cli.dashboard.words import DASH, count, counted, duration, length, percent, rate, version

_BAR = 12
_NARROW = 48  # columns below which words are shorter


def lines(view: View, width: int, height: int) -> list[Text]:
    found = [
        labelled("learning", learning(view)),
        labelled("cycle", *cycle(view, width)),
        labelled("captured", _captured(view)),
        labelled("spool", *_spool(view, width)),
        labelled("drafts", drafts(view)),
        *gate(view, width, max(1, min(3, height - 6))),
    ]
    if height > len(found):
        found += coverage(view)
    room = height - len(found) - 1
    if room >= 2 and (rows := _versions(view, room - 1)):
        found += [Text("version    gain   gate   live   trained on", "dim"), *rows]
    return fitted(found, width, height, view.ascii)


def learning(view: View) -> Text:
    """The state of training and of the trainer."""
    cycle = view.get("cycle", "state")
    if cycle is None:
        return Text(DASH)
    text = Text("paused by the user" if cycle == "paused" else cycle, "yellow" if cycle == "paused" else "")
    trainer = view.get("children", "trainer", "state")
    if trainer is not None and cycle != "off":
        text.append(", trainer ").append(trainer, STATE_STYLES.get(trainer, "cyan"))
    return text


def cycle(view: View, width: int) -> list[Text | str]:
    """How far the present cycle is, else how far the next one is."""
    room = _BAR if width >= _NARROW else 6
    state, seconds, remaining = (view.get("cycle", name) for name in ("state", "seconds", "remaining_s"))
    if state in ("training", "gate") and seconds is not None and remaining is not None:
        loss, speed = view.get("cycle", "loss"), view.get("cycle", "tokens_s")
        left = f"{duration(remaining)} left" if remaining else "the gate judges"
        words = f" {left}, loss {DASH if loss is None else f'{loss:.3f}'}, {rate(speed)} tok/s"
        return [bar(seconds / (seconds + remaining) if seconds + remaining else None, room), words]
    if state == "begins":
        return ["begins"]
    tokens, needed = view.get("trigger", "tokens"), view.get("trigger", "needed")
    if state in (None, "off") or tokens is None or not needed:
        return [DASH]
    rests = view.get("cycle", "rests_s")
    pause = f", rests {duration(rests)}" if rests else ""
    return [bar(tokens / needed, room), f" {count(tokens)} of {count(needed)} new{pause}"]


def _captured(view: View) -> str:
    spool = view.get("spool")
    if not spool:
        return "nothing yet" if spool is not None else DASH
    return f"{counted(spool.get('tokens'), 'token')} in {counted(spool.get('samples'), 'sample')} so far"


def _spool(view: View, width: int) -> list[Text | str]:
    spool = view.get("spool")
    if not spool:
        return [DASH]
    fill = spool.get("fill")
    lost = dropped(spool)
    beside = Text(f"  {count(lost)} dropped", "yellow") if lost else Text("  none dropped", "dim")
    return [bar(fill, _BAR if width >= _NARROW else 6), "" if fill is None else f" {percent(fill)} full", beside]


def dropped(spool: Mapping[str, Any]) -> int:
    """Requests that were not stored, whatever the reason."""
    return sum(value for name, value in spool.items() if name.startswith("dropped"))


def drafts(view: View) -> Text:
    """The served version, and a newer one that is not served."""
    served, latest = view.get("drafts", "served"), view.get("drafts", "latest")
    if served is None:
        return Text(f"none served, newest {version(latest)}")
    ready = view.get("state") in ("READY", "DEGRADED")
    text = Text(f"{version(served)} {'served' if ready else 'to be served'}")
    return text.append(f", newest {version(latest)}") if latest not in (None, served) else text


def gate(view: View, width: int, most: int) -> list[Text]:
    """The verdict over the last candidate, in words."""
    judged = view.get("gate")
    if not judged:
        return [labelled("last gate", DASH)]
    verdict, style = ("passed", "green") if judged.get("passed") else ("not passed", "yellow")
    words = wrapped(f"{verdict}: {judged.get('reason', '')}", max(1, width - LABEL), most)
    words[0].stylize(style, 0, len(verdict))
    return [labelled("last gate" if i == 0 else "", line) for i, line in enumerate(words)]


def coverage(view: View) -> list[Text]:
    """How much of the traffic the vocabulary of the draft that the last cycle began with can say; none before one."""
    found = view.get("training", "coverage")
    if not found:
        return []
    style = "yellow" if found["served"] < found["wanted"] else ""
    share, tokens = f"{100 * found['served']:.1f} %", counted(found["tokens"], "recent token")
    words = f"{version(found.get('version'))} covers {share} of {tokens}"
    return [labelled("vocabulary", (words, style))]


def _versions(view: View, most: int) -> list[Text]:
    """Lines of `most` drafts, the newest last; the served one is among them, however old it is."""
    known = view.get("drafts", "versions") or []
    before, chosen = known[:-most], known[-most:]
    if kept := [row for row in before if row["version"] == view.get("drafts", "served")]:
        chosen = [*kept, *chosen[1:]]
    rows = []
    for row in chosen:
        served = row["version"] == view.get("drafts", "served")
        gain = DASH if row.get("gain") is None else f"{row['gain']:+.3f}"
        live = view.get("live", "acceptance_length") if served else None
        text = Text(
            f"{version(row['version'])}{gain:>10}{length(row.get('acceptance_length')):>7}{length(live):>7}"
            f"   {counted(row.get('tokens'), 'token')}",
            "bold" if served else "",
        )
        if row.get("bad"):
            text.append("  taken back", "yellow")
        rows.append(text)
    return rows
