"""A hub on loopback: the few endpoints that huggingface_hub asks, over HTTP, with files made up by the tests.

Files of at least LARGE bytes are listed as the real hub lists those it keeps by their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

COMMIT = "c0ffee" + "0" * 34
LARGE = 1000


class Hub:
    """files: repository to name to contents; gated: repositories that answer 401 to downloads without a token.

    sizes: listed instead of the true ones. stall: this many bytes of each larger file are sent, then the connection is
    held until `goes_on`. damaged: large files come with another last byte.
    asked: every request as (method, path, Range header).
    """

    def __init__(self, files: dict[str, dict[str, bytes]]) -> None:
        self.files, self.gated, self.sizes = files, set[str](), dict[str, int]()
        self.stall: int | None = None
        self.damaged = False
        self.goes_on = Event()
        self.asked: list[tuple[str, str, str | None]] = []
        self.url = ""

    def fetched(self) -> list[tuple[str, str | None]]:
        """Downloads so far: (file name, Range header)."""
        return [
            (path.rsplit("/", 1)[1], part) for method, path, part in self.asked if method == "GET" and "resolve" in path
        ]


@contextmanager
def serving(files: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    hub = Hub(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            hub.asked.append((self.command, self.path, self.headers.get("Range")))
            path = self.path.partition("?")[0]
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path):
                self._about(match[1], match[2], match[3] or "main")
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._file(match[1], match[2], match[3])
            else:
                self._refuse(404, "EntryNotFound")

        def _about(self, repository: str, what: str | None, revision: str) -> None:
            if repository not in hub.files:
                self._refuse(404, "RepoNotFound")
            elif revision not in ("main", COMMIT):
                self._refuse(404, "RevisionNotFound")
            elif what == "tree":
                deep = "recursive=true" in self.path.lower()
                listed = {n: c for n, c in hub.files[repository].items() if deep or "/" not in n}
                self._json([self._listed(name, content) for name, content in listed.items()])
            else:
                self._json({"id": repository, "sha": COMMIT, "siblings": []})

        def _listed(self, name: str, content: bytes) -> dict[str, object]:
            size = hub.sizes.get(name, len(content))
            entry: dict[str, object] = {"type": "file", "path": name, "size": size, "oid": etag(content)}
            if len(content) >= LARGE:
                entry["lfs"] = {"oid": etag(content), "size": size, "pointerSize": 134}
            return entry

        def _file(self, repository: str, revision: str, name: str) -> None:
            if repository in hub.gated and "Authorization" not in self.headers:
                return self._refuse(401, "GatedRepo")
            if repository in hub.gated:
                return self._refuse(403, "GatedRepo")
            if revision not in ("main", COMMIT):
                return self._refuse(404, "RevisionNotFound")
            content = hub.files.get(repository, {}).get(name)
            if content is None:
                return self._refuse(404, "EntryNotFound")
            sent = content[:-1] + b"?" if hub.damaged and len(content) >= LARGE else content
            start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self.send_response(206 if start else 200)
            self.send_header("ETag", f'"{etag(content)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(sent) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(sent) - 1}/{len(sent)}")
            self.end_headers()
            if self.command == "HEAD":
                return None
            if hub.stall is not None and len(content) > hub.stall:
                self.wfile.write(sent[start : hub.stall])
                hub.goes_on.wait(60)
                start = max(start, hub.stall)
            with suppress(OSError):  # the client was killed meanwhile
                self.wfile.write(sent[start:])
            return None

        def _json(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def etag(content: bytes) -> str:
    """As the hub makes it: SHA-256 of a large file, else of git's kind."""
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
