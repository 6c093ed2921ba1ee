"""`tide status` and `tide train status`: the panels one below the other."""

from __future__ import annotations

from typing import Any

import pytest
from moments import MOMENTS, now, snapshot
from rich.console import Console

from tide_cli.dashboard.status import render_status, render_training
from tide_cli.dashboard.words import count, duration, gib, milliseconds, rate, version


def shown(moment: str, width: int = 110, *, history: bool = True, **status: Any) -> str:
    found = snapshot(moment, **status)
    console = Console(width=width, color_system=None)
    told = {"rows": found.rows, "marks": found.marks} if history else None
    with console.capture() as captured:
        console.print(render_status(found.status, now(moment), told))
    return captured.get()


def test_everything_is_there() -> None:
    text = shown("healthy", notes=["engine and trainer share core 0"])
    for words in ("TIDE  READY", "http://", "Engine", "Speculation", "Adaptation", "Devices", "share core 0", "15 min"):
        assert words in text
    assert "15 min ago" not in shown("healthy", history=False)


def test_an_address_that_does_not_answer_is_said() -> None:
    assert "not answering" in shown("day_0", state="STARTING")
    assert "not answering" not in shown("healthy")


def test_events_of_this_life_only_and_no_markup() -> None:
    begun = snapshot("healthy").status["started"]
    text = "word " * 40
    events = [
        {"id": 1, "kind": "stop", "text": "of an earlier life", "time": begun - 1},
        {"id": 2, "kind": "started", "text": "hidden", "time": begun + 1},
        {"id": 3, "kind": "gate", "text": f"[bold]not markup {text}\nsecond line", "time": begun + 1},
    ]
    shown_text = shown("healthy", events=events)
    assert "[bold]not markup" in shown_text
    assert shown_text.count("word") == 40  # on several lines
    assert "earlier life" not in shown_text
    assert "hidden" not in shown_text


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int, moment: str) -> None:
    assert max(len(line) for line in shown(moment, width).splitlines()) <= width


def test_the_status_of_an_earlier_version_is_shown() -> None:
    since_then = {"load", "engine_answered", "cycle", "trigger", "live", "devices", "speedup", "plain_tok_s", "version"}
    status = {name: value for name, value in snapshot("healthy").status.items() if name not in since_then}
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(render_status(status, now("healthy")))
    assert "v000" in captured.get()
    assert "- running" in captured.get()


def test_training() -> None:
    status = snapshot("healthy", cycle={"state": "paused"}).status
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(render_training(status, now("healthy"), console.width))
    assert "paused by the user" in captured.get()
    assert "last gate" in captured.get()


def test_a_long_verdict_keeps_its_margin_where_lines_are_short() -> None:
    status = snapshot("healthy", gate={"passed": False, "reason": "word " * 30}).status
    console = Console(width=60, color_system=None)
    with console.capture() as captured:
        console.print(render_training(status, now("healthy"), console.width))
    lines = [line for line in captured.get().splitlines() if "word" in line]
    assert len(lines) > 2
    assert all(line.startswith(" " * 11) for line in lines[1:])


def test_words() -> None:
    assert [duration(s) for s in (0, 59.9, 125, 7500)] == ["0 s", "59 s", "2 min 05 s", "2 h 05 min"]
    assert count(1234567) == "1,234,567"
    assert (version(7), version(None)) == ("v0007", "-")
    assert [rate(number) for number in (None, 0.0, 12.34, 1234.5)] == ["-", "0.0", "12.3", "1,234"]
    assert [milliseconds(number) for number in (None, 9.54, 210.0, 1240.0)] == ["-", "9.5 ms", "210 ms", "1.24 s"]
    assert gib(1.5 * 2**30) == "1.5 GiB"
