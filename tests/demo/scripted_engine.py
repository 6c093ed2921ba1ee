"""A small server that answers as the engine does, for tests of what talks to it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ScriptedEngine(ThreadingHTTPServer):
    """Answers each chat request with `tokens` tokens in `tokens / length` steps; `length` may be changed meanwhile.

    journal: what came, in order: ('chat', request) or ('flush', None). most_at_once: chat requests side by side.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.journal: list[tuple[str, Any]] = []
        self.tokens, self.length = 60, 1.0
        self.failure: tuple[int, str] | None = None
        self.gate: threading.Barrier | None = None  # lets chat requests pass only together
        self.answered = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def chats(self) -> list[dict[str, Any]]:
        return [request for kind, request in self.journal if kind == "chat"]


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedEngine
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chat = self.path == "/v1/chat/completions"
        engine = self.server
        with engine.lock:
            engine.journal.append(("chat", json.loads(content)) if chat else (self.path.partition("?")[0], None))
        if chat and engine.gate:
            engine.gate.wait(timeout=30)
        if chat and engine.failure:
            self._answer(engine.failure[0], engine.failure[1].encode())
        elif chat:
            meta = {"completion_tokens": engine.tokens}
            if engine.tokens > 1:
                meta["spec_verify_ct"] = round(engine.tokens / engine.length)
            self._answer(200, json.dumps({"choices": [{"meta_info": meta}]}).encode())
        else:
            self._answer(200, b"Cache flushed.")
        engine.answered.release()

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
