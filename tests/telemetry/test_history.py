"""The history with an injected clock: every row carries its second, nothing waits."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.errors import TideError
from tide_cli.telemetry import history as module
from tide_cli.telemetry.history import History, read_history, step_for
from tide_cli.telemetry.load import Interval
from tide_cli.telemetry.rows import FIGURES, KEPT, STEPS, Row, combine, spans

START = 1_700_000_040  # a full minute


class Kept:
    """A history in a file, and what it has said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self.history = History(path, self.said.append)

    def record(self, begin: int, seconds: int, **values: object) -> Kept:
        for time in range(begin, begin + seconds):
            self.history.add(replace(row(time), **values))
        return self

    def rows(self, step: int, begin: float = 0, end: float = 2**40) -> list[Row]:
        return read_history(self.path, begin, end, step)

    def times(self, step: int) -> list[int]:
        return [one.time for one in self.rows(step)]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "history.db")


def row(time: int) -> Row:
    """A second in which as many tokens came out as its number in the minute."""
    output = time % 60
    observed = Interval(1.0, output, 2 * output, 2.0 if output else None, {(0.0, 0.1): 1}, {(0.1, math.inf): 2})
    return Row(time, observed, 1.0, 0.0, 0.5, 0.25, 7, 3, 2)


def test_a_row_comes_back_as_it_was(kept: Kept) -> None:
    kept.record(START, 3)
    assert kept.rows(1) == [row(START + second) for second in range(3)]
    assert kept.rows(1, START + 1, START + 2) == [row(START + 1)]
    assert (kept.path.stat().st_mode & 0o777, kept.said) == (0o600, [])


def test_parts_of_a_second_are_one_row(kept: Kept) -> None:
    kept.record(START + 5, 1).record(START + 5, 1)
    (only,) = kept.rows(1)
    assert only.observed == Interval(2.0, 10, 20, 2.0, {(0.0, 0.1): 2}, {(0.1, math.inf): 4})


def test_seconds_become_tens_and_minutes_when_those_are_over(kept: Kept) -> None:
    kept.record(START, 60)
    assert kept.times(10) == list(range(START, START + 50, 10))
    assert kept.times(60) == []
    kept.record(START + 60, 1)
    assert kept.times(10) == list(range(START, START + 60, 10))
    (minute,) = kept.rows(60)
    assert minute == combine([row(START + second) for second in range(60)], START)
    figures = minute.figures()
    assert figures["output_tok_s"] == sum(range(60)) / 60
    assert figures["input_tok_s"] == 2 * sum(range(60)) / 60
    assert (figures["ttft_p95_ms"], figures["itl_p95_ms"]) == (95.0, 100.0)
    assert (figures["acceptance_length"], figures["version"], figures["dropped"]) == (2.0, 3, 7)
    assert tuple(figures) == FIGURES


def test_combining_weighs_by_what_was_observed() -> None:
    busy = Row(0, Interval(3.0, 30, 6, 3.0), running=4.0, version=1, dropped=1)
    slow = Row(3, Interval(1.0, 10, 0, 1.0), running=0.0, version=2)
    gone = Row(4)
    both = combine([busy, slow, gone], 0)
    assert both.observed == Interval(4.0, 40, 6, 2.0)  # 40 tokens in 10 + 10 steps
    assert (both.running, both.version, both.dropped, both.kv_use) == (3.0, 2, 1, None)
    assert set(combine([gone], 0).figures().values()) == {0, None}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(10, 40)), min_size=2, max_size=12), st.integers(1, 11))
def test_it_does_not_matter_in_how_many_stages_rows_are_combined(seconds: list[tuple[int, int]], cut: int) -> None:
    rows = [
        Row(time, Interval(1.0, tokens, 0, length / 10, {(0.0, float(length)): tokens}), running=length)
        for time, (tokens, length) in enumerate(seconds)
    ]
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    once, staged = combine(rows, 0), combine([combine(part, part[0].time) for part in parts], 0)
    assert staged.observed.first_token == once.observed.first_token
    assert staged.observed.output == once.observed.output
    assert staged.observed.acceptance_length == pytest.approx(once.observed.acceptance_length, abs=1e-3)
    assert staged.running == pytest.approx(once.running, abs=1e-3)


def test_a_span_begins_when_the_appliance_did() -> None:
    assert [one.time for one in spans([Row(1130), Row(1140), Row(1200), Row(1210)], 100)] == [1130, 1200]


def test_it_is_bounded(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {1: 90, 10: 12, 60: 5}
    monkeypatch.setattr(module, "KEPT", limits)
    kept.record(START, 1000)
    for step, most in limits.items():
        times = kept.times(step)
        assert most <= len(times) <= most + 60 // step
        assert times[-1] + 2 * step > START + 999 - step  # the newest ones
        assert times == list(range(times[0], times[-1] + step, step))


def test_a_restart_goes_on_in_the_same_minute(kept: Kept) -> None:
    kept.record(START, 35)
    kept.history.close()
    again = Kept(kept.path).record(START + 45, 16)
    assert again.times(10) == [START, START + 10, START + 20, START + 30, START + 40, START + 50]
    assert again.rows(10)[3].observed.seconds == 5
    assert again.rows(60)[0].observed.seconds == 35 + 15
    again.history.close()
    days_later = Kept(kept.path).record(START + 10**6, 1)
    assert len(days_later.rows(1)) == 35 + 16 + 1  # nothing was pushed out by time alone
    assert START + 60 in days_later.times(60)


def test_a_clock_that_jumps_ahead_and_back(kept: Kept) -> None:
    kept.record(START, 30).record(START + 10**7, 25)
    assert len(kept.rows(1)) == 55
    kept.record(START + 30, 31)
    assert kept.times(1) == list(range(START, START + 61))
    assert kept.times(60) == [START]
    assert kept.rows(60)[0].observed.output == sum(range(60))


def test_a_clock_that_goes_back_by_some_seconds_replaces_them(kept: Kept) -> None:
    kept.record(START, 50).record(START + 20, 41, version=9)
    assert kept.times(1) == list(range(START, START + 61))
    assert kept.rows(60)[0].observed.seconds == 60
    assert [one.version for one in kept.rows(10)] == [3, 3, 9, 9, 9, 9]


@pytest.mark.parametrize("damage", ["no database at all" * 400, b"SQLite format 3\0" + b"x" * 8000, "format", "page"])
def test_a_damaged_file_is_put_aside_and_said(tmp_path: Path, damage: str | bytes) -> None:
    path = tmp_path / "history.db"
    if damage in ("format", "page"):
        Kept(path).record(START, 500).history.close()
    if damage == "format":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("pragma user_version = 99")
    elif damage == "page":
        content = bytearray(path.read_bytes())
        content[4096 * 3 : 4096 * 5] = b"\xff" * 8192
        path.write_bytes(content)
    else:
        path.write_bytes(damage.encode() if isinstance(damage, str) else damage)
    kept = Kept(path).record(START, 3)
    assert kept.times(1) == [START, START + 1, START + 2]
    (text,) = kept.said
    assert "was damaged" in text
    assert f"{path}.damaged" in text
    assert (tmp_path / "history.db.damaged").exists()


def test_what_cannot_be_written_is_said_once_and_costs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.mkdir()
    kept = Kept(path).record(START, 5)
    (text,) = kept.said
    assert "cannot be written" in text
    path.rmdir()
    kept.record(START + 5, 2)  # and it recovers
    assert kept.times(1) == [START + 5, START + 6]


def test_a_locked_file_costs_the_rows_of_that_time(kept: Kept) -> None:
    kept.record(START, 1)
    kept.history._connection.execute("pragma busy_timeout = 0")
    with closing(sqlite3.connect(kept.path, isolation_level=None)) as other:
        other.execute("begin immediate")
        kept.record(START + 1, 2)
        other.execute("rollback")
    kept.record(START + 3, 1)
    assert (kept.times(1), len(kept.said)) == ([START, START + 3], 1)


def test_reading_what_is_not_there_or_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path / "history.db", 0, 1, 1) == []
    (tmp_path / "history.db").write_bytes(b"")
    assert read_history(tmp_path / "history.db", 0, 1, 1) == []
    (tmp_path / "history.db").write_bytes(b"something else" * 400)
    with pytest.raises(TideError, match="cannot read the history"):
        read_history(tmp_path / "history.db", 0, 1, 1)


def test_steps() -> None:
    assert [step_for(since) for since in (1, 3600, 3601, 86_400, 86_401, 10**9)] == [1, 1, 10, 10, 60, 60]
    assert [step * KEPT[step] for step in STEPS] == [3600, 86_400, 90 * 86_400]
