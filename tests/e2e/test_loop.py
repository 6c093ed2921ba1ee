"""Traffic, spool, cycle, gate, publication, swap: the whole loop, then the way down."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from engines import Appliance, in_parallel

from tide_cli.drafts.store import DraftStore
from tide_cli.spool.reader import SpoolReader
from tide_cli.workload.generator import generate

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

LOOP_SECONDS = 600


def test_traffic_makes_a_better_draft_that_is_served(appliance: Appliance) -> None:
    store = DraftStore(appliance.state / "drafts")
    known = store.latest()
    prompts = generate(seed=3)
    appliance.tide("train", "resume")
    deadline = time.monotonic() + LOOP_SECONDS
    while appliance.status()["drafts"]["served"] <= known:
        assert time.monotonic() < deadline, f"no new draft: {appliance.tide('events').stdout}"
        messages = [prompt.openai() for prompt in itertools.islice(prompts, 8)]
        in_parallel(4, [lambda m=m: chat(appliance, m) for m in messages])

    status = appliance.status()
    served = status["drafts"]["served"]
    gate = store.manifest(served).gate
    assert gate["candidate_al"] > gate["served_al"]
    assert store.manifest(served).tokens > 0
    assert status["spool"]["tokens"] >= 12000
    assert appliance.events("swap"), "the swap is an event with its reason"
    states = appliance.http.get("/server_info").json()["internal_states"]
    assert [state["tide"]["draft_version"] for state in states] == [served]


def chat(appliance: Appliance, messages: list[dict[str, str]], domain: str | None = None) -> str:
    answer = appliance.http.post(
        "/v1/chat/completions",
        headers={"X-SMG-Routing-Key": domain} if domain else {},
        json={"model": "smollm2-135m", "messages": messages, "max_tokens": 64, "temperature": 0},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def test_the_walk_agrees_with_the_engine(appliance: Appliance, record_property: Callable[[str, object], None]) -> None:
    """Acceptance length of the served draft on the same requests: by the engine, and by walking what it stored."""
    from tide_cli.drafts.tensors import read_draft
    from tide_cli.training.config import TrainingConfig
    from tide_cli.training.draft_model import load_draft
    from tide_cli.training.trainer import DraftTrainer
    from tide_cli.training.walk import walk

    served = appliance.status()["drafts"]["served"]
    appliance.flush_cache()
    reader = SpoolReader.open(appliance.state / "spool")
    last = max(info.id for info in reader.samples())
    prompts = [prompt.openai() for prompt in itertools.islice(generate(seed=11), 12)]
    appliance.set_steps(3)  # as the walk drafts, whatever the policy would choose
    in_parallel(4, [lambda m=m: chat(appliance, m) for m in prompts])
    appliance.set_steps(-1)
    infos: list = []
    while len(infos) < 12:  # the last sample becomes visible just after its answer
        infos = [info for info in reader.samples(since_id=last) if info.draft_version == served]
    engine_al = sum(info.verify_steps + info.accepted for info in infos) / sum(info.verify_steps for info in infos)

    config = TrainingConfig.from_json((appliance.state / "run" / "training.json").read_text())
    trainer = DraftTrainer(config, DraftStore(appliance.state / "drafts").path(served))
    load_draft(trainer.walker, read_draft(DraftStore(appliance.state / "drafts").path(served)))
    walks = [walk(trainer.walker, reader.read(info), config.draft_steps) for info in infos]
    walked = sum(w.tokens for w in walks) / sum(w.rounds for w in walks)
    record_property("acceptance_length", f"walked {walked:.3f}, engine {engine_al:.3f}")
    assert walked == pytest.approx(engine_al, rel=0.06)


def test_a_draft_that_has_caught_up_is_as_good_as_one_that_was_never_left_out(appliance: Appliance) -> None:
    """In plain rounds the draft reads nothing; what it proposes after them must not suffer from it."""
    rates = []
    for pattern in ([3], [0, 3]):
        appliance.flush_cache()
        before, over = speculation(appliance), threading.Event()

        def switches(pattern: list[int] = pattern, over: threading.Event = over) -> None:
            for steps in itertools.cycle(pattern):
                appliance.set_steps(steps)
                if over.wait(0.5):
                    return

        def requests(over: threading.Event = over) -> None:
            prompts = [prompt.openai() for prompt in itertools.islice(generate(seed=13), 12)]
            in_parallel(4, [lambda m=m: chat(appliance, m) for m in prompts])
            over.set()

        in_parallel(2, [switches, requests])
        after = speculation(appliance)
        judged, accepted = (after[name][0] - before[name][0] for name in ("judged", "accepted"))
        assert judged > 100
        rates.append(accepted / judged)
    appliance.set_steps(-1)
    assert rates[1] > 0.75 * rates[0] > 0


def speculation(appliance: Appliance) -> dict:
    return appliance.http.get("/server_info").json()["internal_states"][0]["tide"]["speculation"]


def test_the_spool_is_shown_exported_and_erased_while_it_serves(appliance: Appliance, tmp_path: Path) -> None:
    def spool(*arguments: object) -> Any:
        return json.loads(appliance.tide("spool", *arguments, "--json").stdout)

    stored = spool("stat")["stored"]["samples"]
    prompts = [prompt.openai() for prompt in itertools.islice(generate(seed=12), 3)]
    labels = ["code", None, "sql"]
    answers = [chat(appliance, messages, label) for messages, label in zip(prompts, labels, strict=True)]
    while spool("stat")["stored"]["samples"] < stored + 3:  # the last one becomes visible just after its answer
        time.sleep(0.2)
    shown = [spool("show", row["id"], "--text") for row in spool("ls", "--newest", 3)]
    for messages, answer, label in zip(prompts, answers, labels, strict=True):
        row = next(row for row in shown if messages[-1]["content"] in row["prompt"])
        assert answer.startswith(row["answer"].strip()[:40])
        assert row["domain"] == label
    assert spool("verify")["damaged"] == []
    assert spool("export", tmp_path / "export", "--newest", 3)["samples"] == 3

    gone = shown[0]["id"]
    assert spool("erase", gone, "--yes")["samples"] == 1
    assert gone not in [row["id"] for row in spool("ls", "--newest", 3)]
    assert spool("verify")["damaged"] == []
    assert chat(appliance, prompts[0]) == answers[0]


@pytest.mark.parametrize("part", ["launcher", "sglang::detokenizer"])
def test_a_killed_engine_comes_back_with_the_served_draft(appliance: Appliance, part: str) -> None:
    before = appliance.status()
    launcher = psutil.Process(before["children"]["engine"]["pid"])
    pids = {"launcher": launcher.pid} | {
        child.cmdline()[0]: child.pid for child in launcher.children() if child.cmdline()
    }
    os.kill(pids[part], signal.SIGKILL)
    deadline = time.monotonic() + 240
    while True:
        status = appliance.status()
        if status["state"] == "READY" and status["children"]["engine"]["pid"] != before["children"]["engine"]["pid"]:
            break
        assert time.monotonic() < deadline, status
        time.sleep(0.5)
    assert status["drafts"]["served"] == before["drafts"]["served"]
    assert status["children"]["trainer"]["pid"] == before["children"]["trainer"]["pid"]
    states = appliance.http.get("/server_info").json()["internal_states"]
    assert [state["tide"]["draft_version"] for state in states] == [before["drafts"]["served"]]


def test_down_leaves_nothing(appliance: Appliance) -> None:
    pids = family(appliance.state)
    assert pids
    appliance.tide("down")
    assert family(appliance.state) == []
    with pytest.raises(httpx.ConnectError):
        appliance.http.get("/health")
    assert appliance.tide("ps", check=False).returncode == 3
    assert not [path for path in (appliance.state).rglob("*.sock")]


def family(state: Path) -> list[int]:
    """Every process whose command line or environment names the state folder, but this one and its ancestors."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        try:
            mine = str(state) in " ".join([*process.cmdline(), *map(str, process.environ().values())])
        except psutil.Error:
            continue
        if mine and process.pid not in own:
            found.append(process.pid)
    return found
