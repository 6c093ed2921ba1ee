"""Starting the real engine for tests: plain SGLang as it comes, and the appliance through the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tide_cli.engine.launch import cpu_environment
from tide_cli.workload.generator import generate

START_SECONDS = 240
_DOMAINS = ("code", "sql", "math", "chat_en", "spanish", "korean_chat")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def real_prompts(count: int) -> list[list[dict[str, str]]]:
    """Messages of `count` prompts: from $TIDE_WORKLOADS over several domains, else from the project's generator."""
    files = [_workloads() / f"{domain}.jsonl" for domain in _DOMAINS]
    if not all(file.is_file() for file in files):
        return [prompt.openai() for prompt, _ in zip(generate(1), range(count), strict=False)]
    lines = [file.read_text().splitlines() for file in files]
    picked = [json.loads(lines[i % len(files)][i // len(files)]) for i in range(count)]
    return [record["messages"] for record in picked]


def domain_prompts(domain: str, count: int) -> list[list[dict[str, str]]]:
    """Messages of the first `count` prompts of a domain of $TIDE_WORKLOADS; skips the test where there is none."""
    file = _workloads() / f"{domain}.jsonl"
    if not file.is_file():
        pytest.skip(f"needs {file.name} in TIDE_WORKLOADS")
    return [json.loads(line)["messages"] for line in file.read_text().splitlines()[:count]]


def _workloads() -> Path:
    return Path(os.environ.get("TIDE_WORKLOADS", Path(__file__).parents[3] / "shared" / "workloads"))


class Engine:
    """A running OpenAI-compatible server of the embedded target."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=300, trust_env=False)

    def generate(self, **request: Any) -> Any:
        """SGLang's own endpoint: text or input_ids in, output_ids and meta_info out."""
        answer = self.http.post("/generate", json=request)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def greedy(self, input_ids: Sequence[Sequence[int]], tokens: int, concurrency: int, rid: str) -> list[Any]:
        """Answers in the order of the prompts, `concurrency` requests at a time."""
        params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        return in_parallel(
            concurrency,
            [
                lambda i=i, ids=ids: self.generate(input_ids=ids, sampling_params=params, rid=f"{rid}-{i}")
                for i, ids in enumerate(input_ids)
            ],
        )

    def flush_cache(self) -> None:
        # for a moment after its answer a request still counts as running, and then nothing would be flushed
        assert self.http.post("/flush_cache?timeout=10").status_code == 200


def in_parallel(workers: int, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Results in order; the first exception of a call is raised here."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []
    waiting = iter(range(len(calls)))
    lock = threading.Lock()

    def work() -> None:
        while not errors:
            with lock:
                i = next(waiting, None)
            if i is None:
                return
            try:
                results[i] = calls[i]()
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@contextmanager
def plain_sglang(checkpoint: Path, log: Path) -> Iterator[Engine]:
    """SGLang without TIDE's plugin and without speculation, fp32."""
    engine = Engine(free_port())
    argv = [
        *(sys.executable, "-m", "sglang.launch_server", "--model-path", str(checkpoint)),
        *("--host", "127.0.0.1", "--port", str(engine.port), "--device", "cpu", "--dtype", "float32"),
        *("--attention-backend", "torch_native", "--max-total-tokens", "16384", "--max-running-requests", "8"),
        "--skip-server-warmup",
    ]
    env = {**os.environ, **cpu_environment(), "SGLANG_PLUGINS": "none"}
    with log.open("w") as file:
        process = subprocess.Popen(argv, env=env, stdout=file, stderr=file, start_new_session=True)
    try:
        until(lambda: _answers(engine), lambda: process.poll() is None, log)
        yield engine
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(engine: Engine) -> bool:
    try:
        return engine.http.get("/health").status_code == 200
    except httpx.HTTPError:
        return False


def until(done: Callable[[], Any], alive: Callable[[], bool], log: Path, seconds: float = START_SECONDS) -> Any:
    """The first true value of `done`; fails with the end of the log where `alive` is false or time is up."""
    deadline = time.monotonic() + seconds
    while not (value := done()):
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        assert alive(), f"ended:\n{tail}"
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s:\n{tail}"
        time.sleep(0.25)
    return value


class Appliance(Engine):
    """`tide up` in a state folder of its own."""

    def __init__(self, state: Path, cache: Path) -> None:
        super().__init__(free_port())
        self.state = state
        self.cache = cache

    def tide(self, *arguments: object, check: bool = True, **settings: object) -> subprocess.CompletedProcess[str]:
        """One command on this appliance; settings become TIDE_* variables."""
        env = {**os.environ, "TIDE_STATE_DIR": str(self.state), "TIDE_CACHE_DIR": str(self.cache)}
        env |= {f"TIDE_{name.upper()}": str(value) for name, value in settings.items()}
        done = subprocess.run(
            [sys.executable, "-m", "tide_cli", *map(str, arguments)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        assert not check or done.returncode == 0, f"{done.args}: {done.stdout}{done.stderr}"
        return done

    def status(self) -> dict[str, Any]:
        return json.loads(self.tide("status", "--json").stdout)

    def set_steps(self, steps: int) -> None:
        """Draft steps of every round from now on; -1: as the policy says."""
        answer = self.http.post("/set_internal_state", json={"server_args": {"tide_steps": steps}})
        assert answer.status_code == 200

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in json.loads(self.tide("events", "--json").stdout) if event["kind"] == kind]
