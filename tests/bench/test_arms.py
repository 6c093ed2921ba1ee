"""Engines that a measurement starts, on stubs: which stand together, what ends them, and requests that none answers."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stub_engine import StubEngine

from tide_cli.bench import arms
from tide_cli.bench.arms import Arms, send, warm_engines, warm_up
from tide_cli.bench.capture import CaptureBench
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.progress import Progress
from tide_cli.bench.requests import Request
from tide_cli.errors import TideError, UsageError
from tide_cli.settings import Settings

REQUESTS = [Request(({"role": "user", "content": text},), 8) for text in ("one", "two", "too long")]


class StubAppliance:
    def __init__(self, settings: Settings, engine: StubEngine) -> None:
        self.settings, self.stub = settings, engine
        self.url, self.model = engine.url, "m"
        self.ended = False

    def watch(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        status = {"state": "READY", "children": {}}
        if self.ended or not enough(status):
            raise TideError("the engine has ended")
        return status

    def flush_cache(self) -> None:
        self.stub.flushes += 1


class Machine:
    """started: names of the arms in the order of their starts; asked: prompts, of all engines; signals: after so many
    of them a signal arrives."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.started: list[str] = []
        self.standing: set[str] = set()
        self.most_standing = 0
        self.asked: list[str] = []
        self.interrupted_after = 0
        self.interrupted_at_an_end = False

    def script(self, request: dict[str, Any]) -> dict[str, Any]:
        prompt = request["messages"][-1]["content"]
        self.asked.append(prompt)
        if len(self.asked) == self.interrupted_after:
            os.kill(os.getpid(), signal.SIGTERM)
        if prompt == "too long":
            return {"chunks": [], "error": "longer than the context"}
        return {"chunks": [1, 2], "gap": 0.001, "steps": 2, "histogram": [0, 2]}

    @contextmanager
    def running(self, settings: Settings, interrupts: Interrupts) -> Iterator[StubAppliance]:
        name, spool = settings.paths.state.name, settings.paths.spool
        engine = StubEngine(self.script)
        self.started.append(name)
        self.standing.add(name)
        self.most_standing = max(self.most_standing, len(self.standing))
        spool.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(spool / "index.db") as index:
            index.execute("create table if not exists counters (name, value)")
            index.execute("insert into counters values ('tokens', 12), ('dropped_queue', 1)")
        try:
            yield StubAppliance(settings, engine)
        finally:
            if self.interrupted_at_an_end:
                os.kill(os.getpid(), signal.SIGTERM)
            engine.close()
            self.standing.remove(name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(arms, "running", made.running)
    plan = lambda settings: SimpleNamespace(plan=SimpleNamespace(serve=SimpleNamespace(device=made.device, cores=(0,))))  # noqa: E731
    monkeypatch.setattr(arms, "check_settings", plan)
    return made


@pytest.mark.parametrize(
    ("device", "started", "together"),
    [("cpu", ["on", "off"], 2), ("cuda", ["on", "off", "on", "off"], 1)],  # each round begins with another one
)
def test_capture_takes_its_engines_in_turns(machine: Machine, device: str, started: list[str], together: int) -> None:
    machine.device = device
    found = CaptureBench(REQUESTS, 2, 3, {}).run(Progress())
    assert (machine.started, machine.most_standing, machine.standing) == (started, together, set())
    assert (found["rounds"], found["requests"], found["errors"]) == (3, 9, 6)
    assert (found["stored_tokens"], found["dropped_requests"]) == (12, 1)  # though that engine was ended before
    assert machine.asked.count("one") == 6
    assert len(machine.asked) == 6 * 3 + len(started)  # and one each, to warm up


def test_arms_that_must_stand_together_are_refused_on_gpus(machine: Machine, tmp_path: Path) -> None:
    machine.device = "cuda"
    with Interrupts() as interrupts:
        with pytest.raises(UsageError, match="side by side on GPUs") as refused:
            Arms(tmp_path, {}, interrupts)
        assert "TIDE_GPUS=cpu" in (refused.value.remedy or "")
        assert not Arms(tmp_path, {}, interrupts, together=False).on_cpu


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_signal_ends_the_engines_that_stand(machine: Machine, device: str) -> None:
    machine.device, machine.interrupted_after = device, 9
    with pytest.raises(KeyboardInterrupt):
        CaptureBench(REQUESTS, 1, 3, {}).run(Progress())
    assert machine.standing == set()
    assert len(machine.asked) < 18  # requests of all passes: it is not gone on with


def test_a_signal_while_an_engine_is_ended_waits_for_its_end(machine: Machine) -> None:
    machine.device, machine.interrupted_at_an_end = "cuda", True
    with pytest.raises(KeyboardInterrupt):
        CaptureBench(REQUESTS, 1, 3, {}).run(Progress())
    assert machine.standing == set()
    assert machine.started == ["on", "off"]  # the second one only until it may be interrupted


def test_what_is_asked_first_is_none_of_the_requests(machine: Machine) -> None:
    """The first of them may be one that cannot be answered."""
    with warm_engines({"engine": {}}, {}, 1, Progress()) as engines:
        assert not engines["engine"].ended
    assert len(machine.asked) == 1
    assert machine.asked[0] not in ("one", "two", "too long")


def test_room_for_the_requests_is_at_least_what_the_user_has(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def room(at_once: int) -> int:
        with warm_engines({"engine": {}}, {}, at_once, Progress()) as engines:
            return engines["engine"].settings.max_running_requests

    assert (room(4), room(20)) == (8, 20)
    monkeypatch.setenv("TIDE_MAX_RUNNING_REQUESTS", "16")
    assert (room(4), room(20)) == (16, 20)


def test_requests_that_cannot_be_answered_are_errors_where_that_may_be(machine: Machine) -> None:
    with warm_engines({"engine": {}}, {}, 1, Progress()) as engines:
        appliance: Any = engines["engine"]
        with pytest.raises(TideError, match="not one request was answered") as failed:
            send(appliance, REQUESTS[2:], 1, captured=False)
        assert failed.value.why == "longer than the context"
        (answer,) = send(appliance, REQUESTS[2:], 1, captured=False, all_may_fail=True)
        assert answer.error == "longer than the context"
        assert [one.error is None for one in send(appliance, REQUESTS, 2, captured=True)] == [True, True, False]
        appliance.stub.refusal = 500, "no memory"  # whatever is asked
        with pytest.raises(TideError, match="not one request was answered"):
            send(appliance, REQUESTS[2:], 1, captured=False, all_may_fail=True)
        with pytest.raises(TideError, match="not one request was answered"):
            warm_up(appliance)
        appliance.ended = True
        with pytest.raises(TideError, match="the engine has ended"):
            send(appliance, REQUESTS[2:], 1, captured=False, all_may_fail=True)
