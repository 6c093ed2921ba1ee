"""What the panels say: each figure with its name, a dash for what is not known, and no line too long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from moments import MOMENTS, now, view

from tide_cli.dashboard.edges import alarms, header, keys
from tide_cli.dashboard.panels import PANELS
from tide_cli.dashboard.view import View

BY_NAME = {panel.name: panel for panel in PANELS}
ENGINE = {"state": "READY", "seconds": 1.0, "starts": 1, "reason": None}
CYCLE = {"state": "training", "seconds": 30.0, "remaining_s": 90.0, "loss": 1.5, "tokens_s": 400.0}


def shown(name: str, of: View, width: int = 60, height: int = 20) -> str:
    return "\n".join(line.plain for line in BY_NAME[name].lines(of, width, height))


def changed(**fields: Any) -> View:
    """The healthy moment, with parts of fields replaced."""
    healthy = view("healthy")
    new = {name: {**healthy.status[name], **part} if isinstance(part, dict) else part for name, part in fields.items()}
    return replace(healthy, status={**healthy.status, **new})


def test_engine() -> None:
    load = {
        "output_tok_s": 412.34, "input_tok_s": 1204.4, "running": 4, "queued": 2, "kv_use": 0.43,
        "ttft_ms": {"p50": 210.0, "p95": 1480.0}, "itl_ms": {"p50": 12.1, "p95": 31.0},
    }  # fmt: skip
    text = shown("engine", changed(load=load))
    for words in ("READY", "412.3 out", "1,204 in", "4 running, 2 queued", "p50 210 ms", "p95 1.48 s", "43 %"):
        assert words in text
    assert "p50 12.1 ms" in text
    assert "output tokens/s" in text  # and their plot below


def test_an_engine_that_starts_shows_its_phase() -> None:
    phase = {"name": "weights", "words": "loading weights", "seconds": 4.2}
    engine = {"state": "STARTING", "seconds": 70.0, "starts": 2, "phase": phase, "reason": None}
    text = shown("engine", view("day_0", children={"engine": engine}))
    assert "STARTING 1 min 10 s, loading weights 4 s, start 2" in text


def test_an_engine_that_does_not_answer_is_told_at_once() -> None:
    assert "READY 1 s, no answer for 3 s" in shown(
        "engine", changed(engine_answered=now("healthy") - 3.5, children={"engine": ENGINE})
    )
    assert "no answer" not in shown("engine", changed(engine_answered=now("healthy") - 2.0))
    assert "no answer" not in shown("engine", replace(changed(engine_answered=0.0), gone=True))


def test_before_the_engine_the_step_is_named() -> None:
    children = {"target": {"state": "STARTING", "seconds": 3.0}, "engine": {"state": "WAITING", "starts": 0}}
    assert "preparing the target STARTING 3 s" in shown("engine", view("day_0", children=children))


def test_speculation() -> None:
    live = {"by_position": [0.81, None, 0.4], "draft_steps": 3, "why": "it pays", "acceptance_length": 2.0}
    of = changed(load={"acceptance_length": 2.31}, speedup=1.62, plain_tok_s=254.2, live=live)
    text = shown("speculation", of)
    for words in ("2.31 a step", "1.62 × plain (254.2 tok/s)", "0.81 - 0.40", "3: it pays", "15 min ago"):
        assert words in text
    assert shown("speculation", changed(live=live | {"draft_steps": 0})).count("0, plain decoding: it pays") == 1


def test_a_figure_of_another_draft_is_none_of_this_one() -> None:
    text = shown("speculation", changed(speedup=None, plain_tok_s=25.0, live={"by_position": []}))
    assert "- × plain: nothing of this draft yet" in text
    assert "- × plain: not measured" in shown("speculation", changed(speedup=None, plain_tok_s=None))


def test_without_a_history_nothing_is_said_of_the_past() -> None:
    of = view("healthy")
    assert "15 min" not in shown("speculation", replace(of, rows=[]))
    idle = [row | {"acceptance_length": None} for row in of.rows]
    assert "nothing accepted in the last 15 minutes" in shown("speculation", replace(of, rows=idle))


def test_slower_than_plain_decoding_is_said() -> None:
    text = shown("speculation", changed(speedup=0.93))
    assert "0.93 × plain, SLOWER" in text
    assert "SLOWER" not in shown("speculation", changed(speedup=1.0))


def test_marks_of_swaps_are_on_the_plot() -> None:
    of = view("healthy")
    marks = [
        {"time": of.now - 500, "kind": "swap", "text": "v0042 is served"},
        {"time": of.now - 100, "kind": "cycle", "text": "training"},
    ]
    text = shown("speculation", replace(of, marks=marks))
    assert "▲v0042" in text
    assert text.count("▲") == 1


def test_without_a_draft_there_is_nothing_to_speculate() -> None:
    of = changed(drafts={"served": None}, live={"draft_steps": None}, speculation=None)
    assert shown("speculation", of) == "off: no draft is served"


def test_adaptation() -> None:
    spool = {"tokens": 123456, "samples": 321, "fill": 0.25, "dropped_full": 2, "dropped_long": 1}
    versions = [
        {"version": 3, "gain": None, "acceptance_length": None, "tokens": 0, "bad": None},
        {"version": 4, "gain": 0.24, "acceptance_length": 1.77, "tokens": 9000, "bad": "slower"},
    ]
    of = changed(
        spool=spool,
        drafts={"served": 3, "latest": 4, "versions": versions},
        cycle=CYCLE,
        gate={"passed": True, "reason": "1.77 against 1.53"},
        live={"acceptance_length": 2.0},
    )
    text = shown("adaptation", of, 80)
    for words in (
        "training",
        "1 min 30 s left, loss 1.500, 400.0 tok/s",
        "123,456 tokens in 321 samples so far",  # some may have been erased
        "25 % full  3 dropped",
        "v0003 served, newest v0004",
        "passed: 1.77 against 1.53",
        "v0003         -      -   2.00   0 tokens",
        "v0004    +0.240   1.77      -   9,000 tokens  taken back",
    ):
        assert words in text
    text = shown("adaptation", changed(cycle={"state": "waiting"}, trigger={"tokens": 3400, "needed": 6000}))
    assert "3,400 of 6,000 new" in text
    assert "rests" not in text
    text = shown("adaptation", changed(cycle={"state": "waiting", "rests_s": 480.0}))
    assert "new, rests 8" in text
    assert "paused by the user" in shown("adaptation", changed(cycle={"state": "paused"}))


def test_the_served_version_has_a_row_however_few_there_are() -> None:
    row = {"gain": None, "acceptance_length": None, "tokens": 0, "bad": None}
    versions = [{"version": number, **row} for number in range(6)]
    of = changed(drafts={"served": 2, "latest": 5, "versions": versions}, training={"coverage": None})

    def rows(height: int) -> list[str]:
        found = shown("adaptation", of, 80, height).splitlines()
        return [line.split()[0] for line in found if line.endswith("0 tokens")]

    full = next(height for height in range(5, 30) if len(rows(height)) == 6)
    for room, expected in ((1, "2"), (2, "25"), (3, "245"), (4, "2345"), (5, "12345")):
        assert rows(full - 6 + room) == [f"v000{number}" for number in expected]


def test_domains_and_vocabulary() -> None:
    domains = {f"d{n}": {"acceptance_length": 1 + n / 10, "requests": n} for n in range(1, 9)}
    text = shown("speculation", changed(live={"domains": domains}), 80)
    assert "d8 1.80, d7 1.70, d6 1.60, d5 1.50, d4 1.40, d3 1.30 and 2 more" in text
    assert "domains" not in shown("speculation", changed(live={"domains": {}}), 80)
    coverage = {"version": 7, "served": 0.862, "candidate": 0.99, "wanted": 0.97, "changed": 800, "tokens": 12345}
    assert "v0007 covers 86.2 % of 12,345 recent tokens" in shown(
        "adaptation", changed(training={"coverage": coverage}), 80
    )


def test_devices() -> None:
    gpu = {"role": "engine", "cores": None, "gpu": 1, "name": "H200", "use": 0.5, "memory_used": 2**33}
    rows = [gpu | {"memory_total": 2**34, "power": 410.4}] * 8
    text = shown("devices", view(devices=rows), 50, 16)
    assert "engine GPU 1  H200" in text
    assert "50 %  8.0 of 16.0 GiB  410 W" in text
    assert shown("devices", view(devices=rows), 50, 3).endswith("and 6 more")
    unknown = dict.fromkeys(("name", "use", "memory_used", "memory_total", "power"))
    for cores, words in (("0-3", "cores 0-3"), ("0", "engine core 0"), ("0,2", "cores 0,2")):
        assert words in shown("devices", view(devices=[{"role": "engine", "cores": cores, "gpu": None, **unknown}]))


def test_events_are_one_line_each_and_carry_nothing_that_moves_the_cursor() -> None:
    events = [{"id": i, "time": 0.0, "kind": "gate", "text": f"number {i}\n\x1b[2J\x07[bold]more"} for i in range(9)]
    text = shown("events", replace(view(), events=events), 60, 3)
    assert [line.split("  ", 1)[1] for line in text.splitlines()] == [f"number {i}; [bold]more" for i in (6, 7, 8)]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_what_is_not_known_is_a_dash(panel) -> None:
    text = "\n".join(line.plain for line in panel.lines(View({}, 0.0), 60, 12))
    for name in ("p50", "p95", "15 minutes"):
        text = text.replace(name, "")
    assert not any(character.isdigit() for character in text)
    assert "None" not in text
    assert "-" in text or panel.name == "events"


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_no_line_is_too_long_and_there_are_not_too_many(panel, moment: str, ascii: bool) -> None:
    of = view(moment, ascii=ascii)
    for width in (0, 1, 7, 20, 38, 76, 200):
        for height in (0, 1, 2, 5, 9, 30):
            lines = panel.lines(of, width, height)
            assert len(lines) <= height
            assert all(line.cell_len <= width for line in lines)
            assert not ascii or all(line.plain.isascii() for line in lines)


@pytest.mark.parametrize("width", [1, 20, 80, 200])
def test_the_edges_fit(width: int) -> None:
    assert header(view(), width, frozen=True).cell_len <= width
    assert keys([("q", "detach"), ("?", "help")] * 20, width, ascii=True).cell_len <= width


def wrong(of: View) -> str:
    return " ".join(line.plain for line in alarms(of, 500, 5))


def test_nothing_wrong_nothing_said() -> None:
    assert wrong(view("healthy", notes=[])) == ""


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (view("healthy", silence=4.0), "The supervisor has not answered for 4 s"),
        (replace(view("healthy", silence=9.0), gone=True), "No supervisor runs"),
        (view(children={"engine": ENGINE | {"state": "BACKOFF", "reason": "killed"}}), "starts again: killed"),
        (view(children={"engine": ENGINE | {"state": "DEGRADED", "reason": "no token"}}), "not well: no token"),
        (view(children={"engine": ENGINE | {"state": "STARTING", "starts": 2}}), "starting again"),
        (view(children={"engine": ENGINE}, engine_answered=now("healthy") - 9.5), "not answered for 9 s"),
        (view(children={"engine": ENGINE, "trainer": ENGINE | {"state": "FATAL"}}), "trainer is given up; serving"),
        (view(state="STOPPING", reason=None), "The appliance is ending"),
        (view(state="FATAL", reason="no room"), "The appliance has failed: no room"),
        (view(notes=["cores are shared"]), "cores are shared"),
    ],
)
def test_what_is_wrong_is_said(of: View, words: str) -> None:
    assert words in wrong(of)
