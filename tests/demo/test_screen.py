"""What is shown: plain lines without a terminal, one picture on a terminal."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from tide_cli.demo.screen import LiveScreen, PlainScreen, make_screen
from tide_cli.demo.traffic import TrafficFigures

FIGURES = TrafficFigures(12, 1, "the engine does not answer", 1.24, 31.5)


def status(*events: tuple[str, str], training: dict[str, Any] | None = None) -> dict[str, Any]:
    """As `GET /v1/status` answers."""
    now = time.time()
    return {
        "state": "READY",
        "reason": None,
        "address": "http://127.0.0.1:30000/v1",
        "target": "tiny",
        "state_dir": "/state",
        "pid": 1,
        "started": now - 60,
        "notes": [],
        "children": {
            "engine": {"state": "READY", "pid": 2, "starts": 1, "failures": 0, "seconds": 9.0, "reason": None}
        },
        "engine": {"tok_s": 30.0, "accept_length": 1.2, "running": 4, "queued": 0},
        "speculation": None,
        "spool": {"samples": 20, "tokens": 4100},
        "drafts": {"served": 0, "latest": 0},
        "training": {
            "enabled": True,
            "paused": False,
            "running": False,
            "new_tokens": 100,
            "cycle_tokens": 3000,
            "progress": {},
        }
        | (training or {}),
        "gate": None,
        "events": [
            {"id": i, "time": now + i, "kind": kind, "text": text, "data": {}} for i, (kind, text) in enumerate(events)
        ],
    }


def test_plain_lines_tell_each_event_once_and_the_figures_now_and_then() -> None:
    out = io.StringIO()
    screen = make_screen(Console(file=out, width=200))
    assert isinstance(screen, PlainScreen)
    training = {"running": True, "progress": {"step": 7, "loss": 5.5}}
    shown = status(("ready", "the engine is ready"), ("cycle", "training: [3000] tokens\nmore"), training=training)
    with screen:
        screen.phase("sending traffic")
        screen.update(shown, None, pytest.fail)
        screen.update(shown, FIGURES, pytest.fail)
        screen.update(shown, FIGURES, pytest.fail)
        screen.say("round 1 of 3")
    lines = [line.partition(" ")[2] for line in out.getvalue().splitlines()]
    assert lines == [
        "sending traffic",
        "  the engine is ready",
        "  training: [3000] tokens; more",
        "  12 requests answered, 1 failed (the engine does not answer), 31.5 tok/s, acceptance length 1.24 in the last "
        "minute; 4,100 tokens captured, training (step 7, loss 5.50), v0000 served",
        "  round 1 of 3",
    ]


def test_the_picture_holds_phase_traffic_results_and_the_appliance() -> None:
    now = time.time()

    def history() -> dict[str, Any]:
        rows = [{"time": now - 10 * n, "acceptance_length": 1.5, "output_tok_s": 30.0} for n in range(5, 0, -1)]
        return {"rows": rows, "marks": []}

    console = Console(file=io.StringIO(), width=100, force_terminal=True, record=True, color_system=None)
    screen = make_screen(console)
    assert isinstance(screen, LiveScreen)
    with screen:
        screen.phase("measuring")
        screen.say("round 1 of 3")
        screen.progress("3 of 12")
        screen.update(status(), FIGURES, history)
    picture = console.export_text()
    for words in (
        "TIDE demo",
        "measuring",
        "round 1 of 3",
        "3 of 12",
        "12 requests answered",
        "READY",
        "4,100 tokens",
        "15 min ago",
    ):
        assert words in picture
