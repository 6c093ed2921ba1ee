from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from scripted_process import ROOT, ScriptedAppliance

from tide_cli.errors import TideError, UsageError
from tide_cli.paths import Paths
from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.journal import Journal, read_events
from tide_cli.supervisor.recording import row, take_history
from tide_cli.supervisor.run import Supervisor
from tide_cli.supervisor.watchers import Seen
from tide_cli.telemetry.figures import EngineFigures
from tide_cli.telemetry.history import History
from tide_cli.telemetry.load import Interval
from tide_cli.telemetry.rows import FIGURES, Row

STATUS = {
    "load": {"running": 3, "queued": 1, "kv_use": 0.5},
    "spool": {"samples": 9, "dropped_full": 2, "dropped_ring_full": 1, "fill": 0.25},
    "drafts": {"served": 4},
    "live": {"draft_steps": 2},
}
INTERVAL = Interval(1.0, 10, 5, 2.0)


def test_a_row_of_the_status_and_the_look() -> None:
    seen = Seen(EngineFigures(1.0, 2.0, 3, 1, 0.5), STATUS["load"], INTERVAL)
    assert row(STATUS, seen, 7) == Row(7, INTERVAL, 3, 1, 0.5, 0.25, 3, 4, 2)


def test_without_an_engine_only_what_stays_is_in_it() -> None:
    nothing = {**STATUS, "spool": {}, "live": {"draft_steps": None}}
    assert row(nothing, Seen(), 7) == Row(7, version=4)


def test_what_is_given_out(tmp_path: Path) -> None:
    paths = Paths.under(tmp_path, tmp_path)
    assert take_history(paths, 60) == {"step": 1, "rows": [], "marks": []}
    now = int(time.time())
    history = History(paths.history, pytest.fail)
    for second in range(now - 100, now):
        history.add(Row(second, INTERVAL))
    journal = Journal(paths.database)
    for kind in ("swap", "note", "ready"):
        journal.note(kind, f"a {kind}", {})
    found = take_history(paths, 50)
    assert found["step"] == 1
    assert 49 <= len(found["rows"]) <= 51
    assert [(mark["kind"], mark["text"]) for mark in found["marks"]] == [("swap", "a swap"), ("restart", "a ready")]
    assert all(tuple(one) == FIGURES and one["output_tok_s"] == 10.0 for one in found["rows"])
    assert take_history(paths, 500, "10")["step"] == 10
    assert 9 <= len(take_history(paths, 500, "10")["rows"]) <= 10
    combined = take_history(paths, 50, most=10)
    assert combined["step"] == 5
    assert 10 <= len(combined["rows"]) <= 11
    assert {one["output_tok_s"] for one in combined["rows"]} == {10.0}
    assert (
        len(take_history(paths, float("inf"), most=10)["rows"]) == len(take_history(paths, 1e300, most=10)["rows"]) > 0
    )
    for since, step in ((0, "auto"), (float("nan"), "auto"), (5, "7")):
        with pytest.raises(UsageError):
            take_history(paths, since, step)
    assert read_events(paths.database, since=time.time() + 100) == []


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "telemetry.md").read_text()
    assert [name for name in FIGURES if f"`{name}`" not in text] == []


def test_a_running_appliance_keeps_its_history_over_a_restart(appliance: ScriptedAppliance) -> None:
    appliance.paths.state.mkdir()
    appliance.paths.history.write_bytes(b"no database" * 500)
    appliance.up()

    def rows() -> list[dict[str, object]]:
        return ask(appliance.paths.socket, "GET", "/v1/history?since=60")["rows"]

    appliance.until(lambda status: any(one["running"] is not None for one in rows()))
    before = rows()
    assert before[-1]["version"] == 0
    assert [one["time"] for one in before] == sorted({one["time"] for one in before})
    with pytest.raises(TideError, match="no step of 7 s"):
        ask(appliance.paths.socket, "GET", "/v1/history?since=60&step=7")
    appliance.end()
    damaged = [event["text"] for event in read_events(appliance.paths.database) if event["kind"] == "history"]
    assert len(damaged) == 1
    assert "damaged" in damaged[0]
    appliance.up()
    answer = ask(appliance.paths.socket, "GET", "/v1/history?since=600&step=1")
    assert [one["time"] for one in before] == [one["time"] for one in answer["rows"]][: len(before)]
    assert [mark["kind"] for mark in answer["marks"]].count("restart") == 2
    assert json.dumps(answer)


def test_the_counters_of_the_spool_are_of_now(tmp_path: Path) -> None:
    """The loop makes the rest of the status, once a second; a request that has just ended is looked for at once."""
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._paths = Paths.under(tmp_path, tmp_path)
    supervisor._status = {"state": "READY", "spool": {}}
    assert supervisor.status()["spool"] == {}
    supervisor._paths.spool.mkdir()
    with closing(sqlite3.connect(supervisor._paths.spool / "index.db")) as index:
        index.execute("create table counters (name text, value integer)")
        index.execute("insert into counters values ('tokens', 74)")
        index.commit()
    assert supervisor.status() == {"state": "READY", "spool": {"fill": None, "tokens": 74}}
