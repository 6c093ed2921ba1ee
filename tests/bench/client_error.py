"""What the load client adds to the times it measures: `python tests/bench/client_error.py [SECONDS]`.

A stub engine in a process of its own writes into every chunk the moment at which it sent it, by the clock that both
processes share; the difference to the moment that the client took is the client's error, the loopback's share included.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from stub_engine import StubEngine

from tide_cli.bench.client import Answer, send_all
from tide_cli.bench.figures import percentile
from tide_cli.bench.requests import Request

LOADS = ((1, 0.05), (8, 0.05), (32, 0.05), (64, 0.02))  # streams at once, seconds between two chunks of each


def serve(to_parent: Connection) -> None:
    engine = StubEngine()
    engine.text = lambda tokens: f"{time.monotonic():.6f} "
    to_parent.send(engine.url)
    engine.script = lambda request: {"chunks": [1] * request["max_tokens"], "first": 0.1, "gap": request["temperature"]}
    to_parent.recv()


def errors(answers: list[Answer]) -> list[float]:
    """Milliseconds between sending and taking, of every chunk."""
    found = []
    for answer in answers:
        moments = [float(word) for word in answer.text.split()]
        assert len(moments) == len(answer.token_times), answer.error
        found += [1e3 * (taken - sent) for taken, sent in zip(answer.token_times, moments, strict=True)]
    return found


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    process.start()
    url = here.recv()
    print("streams  chunks/s  asked ms  measured ITL p50 / p95 / p99 ms  error p50 / p95 / p99 ms  client, of a core")
    for streams, gap in LOADS:
        messages: tuple[dict[str, Any], ...] = ({"role": "user", "content": "Hello"},)
        requests = [Request(messages, int(seconds / gap), gap)] * streams
        cpu, begun = time.process_time(), time.monotonic()
        answers = asyncio.run(send_all(url, "m", requests, concurrency=streams))
        wall, share = time.monotonic() - begun, time.process_time() - cpu
        gaps = [1e3 * (b - a) for one in answers for a, b in zip(one.token_times, one.token_times[1:], strict=False)]
        chunks = sum(len(one.token_times) for one in answers)
        itl, error = ([percentile(values, share) for share in (50, 95, 99)] for values in (gaps, errors(answers)))
        print(
            f"{streams:7d}  {chunks / wall:8.0f}  {1e3 * gap:8.1f}"
            f"  {' / '.join(f'{value:.2f}' for value in itl):>31}"
            f"  {' / '.join(f'{value:.2f}' for value in error):>24}  {share / wall:.1%}"
        )
    here.send(None)
    process.join()


if __name__ == "__main__":
    main()
