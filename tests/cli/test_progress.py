"""What a long command tells on stderr."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import TimeRemainingColumn

from tide_cli.bench.progress import PassTicks
from tide_cli.bench.progress import Progress as Told
from tide_cli.cli.progress import _bar, narrated


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("tide_cli.cli.progress.time.monotonic", lambda: now)
    with narrated("busy") as progress:
        assert capsys.readouterr().err == ""  # what was asked for may still be refused
        progress.say("it begins")
        progress.tick(10, 100)
        now = 1300.0
        progress.tick(40, 100)  # 30 in 300 s, 60 are left
        progress.say("a part is done [not markup]")
    out, err = capsys.readouterr()
    assert out == ""
    warning, first, second = err.splitlines()
    assert warning == "tide: busy"
    assert first.endswith("it begins")
    assert second.endswith("a part is done [not markup] (40%, about 10 min left)")


def test_the_remaining_time_is_known_though_ticks_are_minutes_apart() -> None:
    now = 1000.0
    bar = _bar(Console(file=io.StringIO(), force_terminal=True), TimeRemainingColumn())
    bar.get_time = lambda: now  # type: ignore[method-assign]
    task = bar.add_task("", total=None)
    for done in range(1, 4):
        now += 200
        bar.update(task, completed=done, total=6)
    assert bar.tasks[0].time_remaining == 600


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_every_pass_counts_as_much_as_any_other(sizes: list[int]) -> None:
    told: list[tuple[float, float]] = []

    class Ticks(Told):
        def tick(self, done: float, total: float) -> None:
            told.append((done, total))

    passes = PassTicks(Ticks(), len(sizes))
    for number, answers in enumerate(sizes, start=1):
        on_answer = passes.begin(answers)
        for _ in range(answers):
            on_answer(None)
        assert told[-1] == (number, len(sizes))
    assert len(told) == 1 + sum(sizes)
    assert told == sorted(told)
