"""What the dashboard keeps of the supervisor's answers, and what it says while there are none."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tide_cli.dashboard.feed import Feed, merged
from tide_cli.dashboard.lines import report
from tide_cli.errors import NotRunningError, TideError


class Supervisor:
    """Answers as the control API does, or fails as it was told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: TideError | None = None
        self.status: dict[str, Any] = {"pid": 1, "state": "READY", "state_dir": "/state", "events": [event(3)]}
        self.events = [event(1), event(2)]
        self.rows = [{"time": time.time() - age, "output_tok_s": age} for age in (5000.0, 20.0, 10.0)]

    def ask(self, _: Path, method: str, resource: str, **__: Any) -> Any:
        self.asked.append(resource)
        assert method == "GET"
        if self.failure is not None:
            raise self.failure
        if resource == "/v1/status":
            return self.status
        return self.events if resource.startswith("/v1/events") else {"rows": self.rows, "marks": []}


def event(number: int) -> dict[str, Any]:
    return {"id": number, "time": 0.0, "kind": "gate", "text": f"event {number}"}


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@pytest.fixture
def feed(supervisor: Supervisor) -> Feed:
    return Feed(Path("socket"), supervisor.ask)


def test_answers_are_put_together(supervisor: Supervisor, feed: Feed) -> None:
    feed.poll()
    found = feed.latest
    assert found.status is supervisor.status
    assert [row["id"] for row in found.events] == [1, 2, 3]
    assert [row["output_tok_s"] for row in found.rows] == [20.0, 10.0]  # what no plot shows is not kept
    assert supervisor.asked[-1].startswith("/v1/history?")


def test_only_what_is_new_is_asked_for(supervisor: Supervisor, feed: Feed) -> None:
    feed.poll()
    supervisor.asked.clear()
    supervisor.rows = [{"time": supervisor.rows[-1]["time"], "output_tok_s": 7.0}]
    supervisor.status = supervisor.status | {"events": [event(4)]}
    feed.poll()
    assert not any(resource.startswith("/v1/events") for resource in supervisor.asked)
    since = int(supervisor.asked[-1].split("since=")[1].split("&")[0])
    assert 14 <= since <= 20
    assert [row["output_tok_s"] for row in feed.latest.rows] == [20.0, 7.0]
    assert [row["id"] for row in feed.latest.events] == [1, 2, 3, 4]


def test_another_supervisor_is_asked_for_its_events(supervisor: Supervisor, feed: Feed) -> None:
    feed.poll()
    supervisor.status = {**supervisor.status, "pid": 2, "events": [event(6)]}
    supervisor.events = [event(5)]
    feed.poll()
    assert [row["id"] for row in feed.latest.events] == [5, 6]


@pytest.mark.parametrize(("failure", "gone"), [(NotRunningError("none"), True), (TideError("slow"), False)])
def test_while_nobody_answers_the_last_figures_stay(
    supervisor: Supervisor, feed: Feed, failure: TideError, gone: bool
) -> None:
    feed.poll()
    answered = feed.latest.answered
    supervisor.failure = failure
    feed.poll()
    found = feed.latest
    assert (found.gone, found.status, found.answered) == (gone, supervisor.status, answered)
    assert found.view(0.0, answered + 9.0, False).silence == pytest.approx(9.0)
    assert found.view(0.0, answered + 9.0, False).stale
    supervisor.failure = None
    feed.poll()
    assert not feed.latest.view(0.0, feed.latest.answered, False).stale


def test_a_history_that_cannot_be_told_costs_the_plot_only(supervisor: Supervisor, feed: Feed) -> None:
    def ask(path: Path, method: str, resource: str, **more: Any) -> Any:
        if resource.startswith("/v1/history"):
            raise TideError("locked")
        return supervisor.ask(path, method, resource, **more)

    feed = Feed(Path("socket"), ask)
    feed.poll()
    assert feed.latest.status is supervisor.status
    assert feed.latest.rows == []


def test_merged_rows_ascend_and_the_new_one_counts() -> None:
    old = [{"time": 1, "a": 1}, {"time": 2, "a": 2}]
    assert merged(old, [{"time": 3, "a": 3}, {"time": 2, "a": 9}], "time") == [
        {"time": 1, "a": 1},
        {"time": 2, "a": 9},
        {"time": 3, "a": 3},
    ]


def test_lines_without_a_terminal(supervisor: Supervisor, feed: Feed) -> None:
    """An event once, a trouble when it comes and when it goes, the figures in between; nothing while they are old."""

    def snapshots():
        feed.poll()
        yield feed.latest
        supervisor.status = supervisor.status | {"events": [event(4)], "load": {"output_tok_s": 12.34}}
        feed.poll()
        yield feed.latest
        supervisor.failure = NotRunningError("none")
        for _ in range(2):
            feed.poll()
            yield feed.latest
        supervisor.failure = None
        feed.poll()
        yield feed.latest

    told = report(snapshots(), lambda found: found.view(0.0, found.answered, False))
    texts = [line.split("  ", 1)[1] for line in told]
    assert [text.split("  ")[0] for text in texts] == [
        "READY",
        "event 4",
        "READY",
        "No supervisor runs on /state for 0 s; waiting for one. Figures are the last known.",
        "all is well again",
        "READY",
    ]
    assert "12.3 tok/s out, - in" in texts[2]
