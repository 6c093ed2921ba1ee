"""The control socket and its client: orders that make no sense, and other programs at the other end."""

from __future__ import annotations

import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tide_cli.errors import TideError
from tide_cli.supervisor import control_client
from tide_cli.supervisor.control_client import STATUS_VERSION, NoAnswerError, ask
from tide_cli.supervisor.procfs import process_stat


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A socket, and what its other end says."""
    said: dict[str, str] = {}

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(said["answer"].encode())

    with socketserver.UnixStreamServer(str(tmp_path / "socket"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield tmp_path / "socket", said
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("200 OK", "<html>"),
        ("200 OK", "[" * 100_000),
        ("200 OK", "[1]"),
        ("200 OK", '{"state": "READY"}'),
        ("200 OK", f'{{"version": {STATUS_VERSION + 1}}}'),
        ("500 Internal Server Error", "Internal Server Error"),
        ("422 Unprocessable Content", '{"detail": []}'),
        ("404 Not Found", "[]"),
    ],
)
def test_something_else_at_the_other_end(answering: tuple[Path, dict[str, str]], status: str, body: str) -> None:
    path, said = answering
    said["answer"] = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with pytest.raises(TideError, match="another version of TIDE, or something else") as raised:
        ask(path, "GET", "/v1/status")
    assert raised.value.why
    assert raised.value.remedy


class Orders:
    """Takes everything."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def events(self, after: int, newest: int | None) -> list[dict[str, Any]]:
        self.asked.append((after, newest))
        return []

    def restart(self, children: list[str]) -> str:
        self.asked.append(children)
        return "restarting"


def test_orders_that_make_no_sense_reach_nobody(tmp_path: Path) -> None:
    from tide_cli.supervisor.control import ControlServer

    orders, path = Orders(), tmp_path / "socket"
    server = ControlServer(path, orders)
    try:
        for query in ("after=100000000000000000000000", "newest=100000000000000000000000", "newest=-1"):
            with pytest.raises(TideError):
                ask(path, "GET", f"/v1/events?{query}")
        assert orders.asked == []
        assert ask(path, "POST", "/v1/restart", {"children": ["engine", "trainer"]}) == {"done": "restarting"}
        assert ask(path, "GET", "/v1/events?after=3&newest=2") == []
        assert orders.asked == [["engine", "trainer"], (3, 2)]
    finally:
        server.close()


@pytest.mark.parametrize("remedy", ["7", "null", '["a", 1]'])
def test_a_refusal_with_an_odd_remedy_is_one_all_the_same(answering: tuple[Path, dict[str, str]], remedy: str) -> None:
    path, said = answering
    body = f'{{"error": "not now", "remedy": {remedy}}}'
    said["answer"] = f"HTTP/1.1 409 Conflict\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with pytest.raises(TideError) as raised:
        ask(path, "POST", "/v1/train")
    assert raised.value.lines() == ["not now"]


_LISTENS = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_stopped_supervisor_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(control_client, "_PATIENCE", 0.05)
    path, pipe = tmp_path / "control.sock", subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", _LISTENS, path], stdin=pipe, stdout=pipe) as listening:
        assert listening.stdout is not None
        listening.stdout.readline()
        listening.send_signal(signal.SIGSTOP)
        while (stat := process_stat(listening.pid)) and stat.state != "T":
            pass
        with pytest.raises(NoAnswerError) as caught:
            ask(path, method, "/v1/status", timeout=3600)
        listening.send_signal(signal.SIGCONT)
        listening.kill()
    pid = listening.pid
    assert caught.value.lines() == [
        f"the supervisor (process {pid}) does not answer: it is stopped",
        f"`kill -CONT {pid}` lets it go on; `tide down --now` ends it in any case",
    ]


def test_one_that_says_nothing_is_waited_for_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "_PATIENCE", 0.05)
    path, words = tmp_path / "control.sock", []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(NoAnswerError, match="does not answer") as caught:
            ask(path, "POST", "/v1/train", timeout=0.2, waits=lambda: words.append("waits"))
    assert (caught.value.why, words) == ("nothing came within 0 s", ["waits"])
