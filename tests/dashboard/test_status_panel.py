from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from tide_cli.dashboard.status import render_status
from tide_cli.dashboard.words import count, duration, version

STATUS: dict[str, Any] = {
    "state": "PREPARING",
    "reason": None,
    "address": "http://127.0.0.1:30000/v1",
    "target": "smollm2-135m",
    "started": 1000.0,
    "notes": [],
    "children": {"engine": {"state": "WAITING", "seconds": 0.0, "starts": 0}},
    "engine": None,
    "speculation": None,
    "spool": {},
    "drafts": {"served": None, "latest": None},
    "training": {
        "enabled": True,
        "paused": False,
        "running": False,
        "new_tokens": 0,
        "cycle_tokens": 6000,
        "progress": {},
        "coverage": None,
    },
    "live": {"domains": {}},
    "gate": None,
    "events": [],
}
LATER = STATUS | {
    "state": "READY",
    "notes": ["engine and trainer share core 0: both will be slower"],
    "children": {
        "target": {"state": "DONE", "seconds": 70.0, "starts": 1},
        "engine": {"state": "READY", "seconds": 65.0, "starts": 1},
        "trainer": {"state": "BACKOFF", "seconds": 1.0, "starts": 1},
    },
    "engine": {"tok_s": 37.25, "accept_length": 1.77, "running": 4, "queued": 0},
    "spool": {"tokens": 123456, "samples": 321, "dropped_full": 2},
    "drafts": {"served": 3, "latest": 4},
    "training": {
        "enabled": True,
        "paused": False,
        "running": True,
        "new_tokens": 10,
        "cycle_tokens": 6000,
        "progress": {"cycle": 2, "step": 7, "loss": 1.5, "tokens_s": 400.0, "elapsed_s": 30.0, "budget_s": 120.0},
        "coverage": {"served": 0.862, "candidate": 0.99, "wanted": 0.97, "changed": 800, "tokens": 12345},
    },
    "gate": {"passed": True, "reason": "1.53 against 1.31"},
    "events": [
        {"kind": "swap", "text": "v0003 is served", "time": 1001.0},
        {"kind": "started", "text": "hidden", "time": 1002.0},
        {"kind": "stop", "text": "of an earlier life", "time": 999.0},
        {"kind": "fatal", "text": "[bold]not markup", "time": 1002.0},
    ],
}


def shown(status: dict[str, Any], width: int = 110) -> str:
    console = Console(width=width, record=True, color_system=None)
    with console.capture() as captured:
        console.print(render_status(status, now=1065.0))
    return captured.get()


def test_an_engine_that_starts_shows_its_phase() -> None:
    phase = {"name": "weights", "words": "loading weights", "seconds": 4.2}
    engine = {"state": "STARTING", "seconds": 70.0, "starts": 1, "phase": phase}
    status = STATUS | {"state": "STARTING", "children": {"engine": engine}}
    assert "engine STARTING 1 min 10 s, loading weights 4 s" in shown(status)


def test_before_anything_runs() -> None:
    text = shown(STATUS)
    assert "PREPARING" in text
    assert "1 min 05 s" in text
    assert "0 of 6,000 new tokens" in text
    assert "none served" in text


def test_everything_is_there() -> None:
    text = shown(LATER)
    for words in (
        "READY",
        "37.2 tok/s",
        "acceptance length 1.77",
        "4 running",
        "123,456 tokens in 321 samples",
        "2 requests dropped",
        "v0003 served, newest v0004",
        "cycle 2, step 7, loss 1.500, 400 tok/s, 30 s of 2 min 00 s",
        "passed  1.53 against 1.31",
        "covers 86.2% of 12,345 recent tokens",
        "share core 0",
        "v0003 is served",
        "[bold]not markup",
    ):
        assert words in text
    for words in ("hidden", "earlier life", "STOPPED"):
        assert words not in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in shown(LATER, width).splitlines()) <= width


SPECULATION = {"adaptive": True, "steps": 3, "measuring": False, "acceptance": [0.5, 0.25], "reason": "it pays"}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "3 draft steps   acceptance by position 0.50, 0.25   it pays"),
        ({"steps": 0}, "plain decoding   acceptance by position 0.50, 0.25   it pays"),
        ({"adaptive": False}, "3 draft steps, fixed"),
        ({"measuring": True}, "measuring round times"),
    ],
)
def test_how_the_engine_speculates(state: dict[str, Any], words: str) -> None:
    assert words in shown(LATER | {"speculation": SPECULATION | state})
    assert "speculation" not in shown(LATER)


def test_acceptance_by_domain() -> None:
    domains = {f"d{n}": {"acceptance_length": 1 + n / 10, "requests": n} for n in range(1, 9)}
    text = shown(LATER | {"live": {"domains": domains}})
    assert "acceptance length d8 1.80, d7 1.70, d6 1.60, d5 1.50, d4 1.40, d3 1.30 and 2 more" in text
    assert "by domain" not in shown(LATER)


def test_words() -> None:
    assert [duration(s) for s in (0, 59.9, 125, 7500)] == ["0 s", "59 s", "2 min 05 s", "2 h 05 min"]
    assert count(1234567) == "1,234,567"
    assert (version(7), version(None)) == ("v0007", "-")
