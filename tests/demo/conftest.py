"""The scripted engine, and a client of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from scripted_engine import ScriptedEngine

from tide_cli.demo.chat import ChatClient


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    server = ScriptedEngine()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def chat(engine: ScriptedEngine) -> Iterator[ChatClient]:
    client = ChatClient(engine.url, "tiny", connections=4)
    yield client
    client.close()
