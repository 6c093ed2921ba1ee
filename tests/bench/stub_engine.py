"""A server that streams chat completions as SGLang does, at moments that are known beforehand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[dict[str, Any]], dict[str, Any]]


def plain(request: dict[str, Any]) -> dict[str, Any]:
    """Five tokens in three chunks, then the end of the answer as a sixth; verified in three steps."""
    return {"chunks": [1, 2, 2], "silent": 1, "first": 0.0, "gap": 0.0, "steps": 3, "histogram": [1, 0, 2]}


class StubEngine(ThreadingHTTPServer):
    """script: says for a request what comes back.

    chunks: tokens of each chunk; silent: tokens at the end without a text; first, gap: seconds before the first chunk
    and before each later one; steps, histogram: of speculation, absent without it; instead of an end: `error` for an
    event of the stream, `broken` for a connection that closes, `hang` to wait until the engine is closed.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: Script = plain) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.text: Callable[[int], str] = lambda tokens: "x" * tokens  # of a chunk
        self.lock = threading.Lock()
        self.chats: list[dict[str, Any]] = []
        self.flushes = 0
        self.now = self.most_at_once = 0
        self.refusal: tuple[int, str] | None = None
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()

    def events(self, script: dict[str, Any]) -> Iterator[Any]:
        given, due = 0, time.monotonic() + script.get("first", 0.0)
        for place, tokens in enumerate(script["chunks"]):
            time.sleep(max(0.0, due - time.monotonic()))
            if place == 0:
                yield {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
            given += tokens
            usage = {"prompt_tokens": 7, "completion_tokens": given}
            text = self.text(tokens)
            yield {"choices": [{"delta": {"content": text}, "finish_reason": None}], "usage": usage}
            due += script.get("gap", 0.0)
        if script.get("error"):
            yield {"error": {"message": script["error"], "code": 500}}
            return
        if script.get("broken"):
            return
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}
        if "steps" in script:
            histogram = script["histogram"]
            details = {
                "spec_verify_ct": script["steps"],
                "spec_num_proposed_drafts": 3 * script["steps"],
                "spec_correct_drafts_histogram": histogram,
            }
            yield {"choices": [], "sglext": {"spec_tokens_details": details}}
        usage = {"prompt_tokens": 7, "completion_tokens": given + script.get("silent", 0)}
        yield {"choices": [], "usage": usage}


class _Handler(BaseHTTPRequestHandler):
    server: StubEngine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b'sglang:token_usage{model="stub"} 0.25\n')

    def do_POST(self) -> None:
        engine = self.server
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.endswith("/chat/completions"):
            engine.flushes += 1
            self._answer(200, b"Cache flushed.")
            return
        request = json.loads(content)
        with engine.lock:
            engine.chats.append(request)
            engine.now += 1
            engine.most_at_once = max(engine.most_at_once, engine.now)
        try:
            if engine.refusal:
                self._answer(engine.refusal[0], engine.refusal[1].encode())
            else:
                self._stream(engine.script(request))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with engine.lock:
                engine.now -= 1

    def _stream(self, script: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if script.get("hang"):
            self.server.released.wait(30)
        for event in self.server.events(script):
            text = event if isinstance(event, str) else json.dumps(event)
            line = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        if script.get("broken"):
            self.close_connection = True
            return
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
