"""What status, history and metrics say of the real engine, against its own answers, the index and the draft store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil
import pytest
from engines import Appliance

from tide_cli.drafts.store import DraftStore
from tide_cli.engine.client import EngineClient
from tide_cli.spool.reader import SpoolReader
from tide_cli.supervisor.control_client import ask
from tide_cli.telemetry.exporter import CONTENT_TYPE
from tide_cli.telemetry.figures import EngineCounters, read_engine
from tide_cli.telemetry.history import read_history
from tide_cli.telemetry.prometheus import parse_page

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]  # the first one starts the engine

TOKENS = 24
MOST_STEPS = 3  # of the draft
WITHIN = 30.0  # seconds; all of it is there after two looks of the supervisor


def until(found: Callable[[], Any]) -> Any:
    """The first value that is not None."""
    deadline = time.monotonic() + WITHIN
    while (value := found()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value


def idle_since(appliance: Appliance) -> int | None:
    """The second after the newest row of the history, where nothing was generated in that."""
    rows = read_history(appliance.state / "history.db", time.time() - 3, time.time() + 1, 1)
    idle = rows and rows[-1].observed and rows[-1].observed.output == 0
    return rows[-1].time + 1 if idle else None


def streamed(appliance: Appliance, ids: list[int]) -> dict[str, Any]:
    """The last part of a streamed answer."""
    params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    request = {"input_ids": ids, "sampling_params": params, "stream": True, "rid": "telemetry-streamed"}
    with appliance.http.stream("POST", "/generate", json=request) as answer:
        *_, last, _ = [line for line in answer.iter_lines() if line.startswith("data:")]
    return json.loads(last.removeprefix("data:"))


def test_figures_are_those_of_their_sources(appliance: Appliance, prompt_ids: list[list[int]]) -> None:
    engine = EngineClient("127.0.0.1", appliance.port)
    socket = appliance.state / "control.sock"
    begun = until(lambda: idle_since(appliance))
    before = read_engine(engine.metrics_text())[1]
    answers = appliance.greedy(prompt_ids[:3], TOKENS, 3, "telemetry")
    # of a request that is not streamed SGLang tells no time between tokens
    infos = [answer["meta_info"] for answer in [*answers, streamed(appliance, prompt_ids[3])]]
    output = sum(info["completion_tokens"] for info in infos)
    # SGLang counts what the last round of a request accepts beyond its end, too; and TIDE may ask for one token
    beyond = len(infos) * MOST_STEPS + 1

    def counted() -> EngineCounters | None:
        now = read_engine(engine.metrics_text())[1]
        return now if now.output - before.output >= output else None

    after = until(counted)
    assert after.output - before.output <= output + beyond
    assert 0 <= after.input - before.input - sum(info["prompt_tokens"] for info in infos) <= beyond

    def recorded() -> float | None:
        rows = read_history(appliance.state / "history.db", begun, time.time() + 1, 1)
        told = sum(row.observed.output for row in rows if row.observed)
        return told if told >= output else None

    assert until(recorded) <= output + beyond

    def settled() -> dict[str, Any] | None:
        """A status that says what SGLang's gauges say."""
        status = ask(socket, "GET", "/v1/status")
        gauges = read_engine(engine.metrics_text())[0]
        told = {name: status["load"][name] for name in ("running", "queued", "kv_use")}
        return status if told == {name: getattr(gauges, name) for name in told} else None

    status = until(settled)
    rates = [info["completion_tokens"] / info["spec_verify_ct"] for info in infos]
    assert min(rates) - 0.5 <= status["load"]["acceptance_length"] <= max(rates) + 0.5
    assert 0 < status["load"]["output_tok_s"] <= output + beyond
    assert 0 < status["load"]["ttft_ms"]["p50"] <= status["load"]["ttft_ms"]["p95"]
    assert 0 < status["load"]["itl_ms"]["p50"] <= status["load"]["itl_ms"]["p95"]
    assert status["devices"][0]["memory_total"] == psutil.virtual_memory().total

    (state,) = engine.tide_states()
    assert status["drafts"]["served"] == state["draft_version"]
    assert status["drafts"]["latest"] == DraftStore(appliance.state / "drafts").latest()

    def stored() -> dict[str, Any] | None:
        spool = ask(socket, "GET", "/v1/status")["spool"]
        totals = SpoolReader.open(appliance.state / "spool").totals()
        return spool if {name: spool.get(name) for name in totals} == totals else None

    spool = until(stored)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://tide") as client:
        answer = client.get("/metrics")
        history = json.loads(client.get("/v1/history", params={"since": 60}).text)
    assert answer.headers["content-type"] == CONTENT_TYPE
    metrics = parse_page(answer.text)
    assert metrics["tide_spool_samples_total"] == spool["samples"]
    assert metrics["tide_spool_tokens_total"] == spool["tokens"]
    assert metrics["tide_served_draft_version"] == state["draft_version"]
    assert (metrics["tide_ready"], metrics["tide_draft_on_trial"]) == (1, status["live"]["on_trial"])
    assert history["rows"][-1]["version"] == state["draft_version"]
    assert history["rows"][-1]["dropped"] == sum(n for name, n in spool.items() if name.startswith("dropped_"))
    engine.close()


def test_the_draft_steps_in_force_are_the_engines(appliance: Appliance) -> None:
    """The supervisor asks the engine every ten seconds."""
    engine = EngineClient("127.0.0.1", appliance.port)

    def the_same() -> dict[str, Any] | None:
        (state,) = engine.tide_states()
        live = ask(appliance.state / "control.sock", "GET", "/v1/status")["live"]
        told = (state["speculation"]["steps"], state["speculation"]["reason"])
        return live if (live["draft_steps"], live["why"]) == told else None

    live = until(the_same)
    assert all(rate is None or 0 <= rate <= 1 for rate in live["by_position"])
    engine.close()
