"""The control API: HTTP over a Unix socket that only the appliance's owner can open.

GET /metrics, GET /v1/status, GET /v1/events?after=ID&newest=N, GET /v1/history?since=SECONDS&step=auto,
POST /v1/stop {"now": bool}, POST /v1/train, POST /v1/train/pause {"pause": bool},
POST /v1/restart {"children": ["engine", …]}, POST /v1/drafts/use {"version": N}.
A refused order answers 409 with {"error": what, "remedy": … or null}.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Protocol

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from tide_cli.errors import TideError
from tide_cli.telemetry.exporter import CONTENT_TYPE

RowId = Annotated[int, Query(ge=0, lt=2**63)]  # SQLite has no others


class Orders(Protocol):
    """What the API may ask of the supervisor; train and use raise TideError where they are refused."""

    def status(self) -> dict[str, Any]: ...
    def events(self, after: int, newest: int | None) -> list[dict[str, Any]]: ...
    def history(self, since: float, step: str) -> dict[str, Any]: ...
    def metrics(self) -> bytes: ...
    def stop(self, by: str) -> None: ...
    def kill(self) -> None: ...
    def train_now(self) -> str: ...
    def pause_training(self, pause: bool) -> str: ...
    def restart(self, children: list[str]) -> str: ...
    def use_draft(self, version: int) -> str: ...


class StopOrder(BaseModel):
    now: bool = False


class PauseOrder(BaseModel):
    pause: bool


class RestartOrder(BaseModel):
    children: list[str]


class UseOrder(BaseModel):
    version: int


def control_app(orders: Orders) -> FastAPI:
    """The application, without the socket."""
    app = FastAPI(title="TIDE control", openapi_url=None)

    @app.exception_handler(TideError)
    def refused(_: Request, error: TideError) -> JSONResponse:
        what = f"{error.what}: {error.why}" if error.why else error.what
        return JSONResponse({"error": what, "remedy": error.remedy}, status_code=409)

    @app.get("/v1/status")
    def status() -> dict[str, Any]:
        return orders.status()

    @app.get("/v1/events")
    def events(after: RowId = 0, newest: RowId | None = None) -> list[dict[str, Any]]:
        return orders.events(after, newest)

    @app.get("/v1/history")
    def history(since: float = 900.0, step: str = "auto") -> Response:
        # made here: FastAPI would look at each of thousands of rows before it writes them
        return Response(json.dumps(orders.history(since, step)), media_type="application/json")

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(orders.metrics(), headers={"Content-Type": CONTENT_TYPE})

    @app.post("/v1/stop")
    def stop(order: StopOrder) -> dict[str, str]:
        if order.now:
            orders.kill()
        else:
            orders.stop("tide down")
        return {"done": "stopping"}

    @app.post("/v1/train")
    def train() -> dict[str, str]:
        return {"done": orders.train_now()}

    @app.post("/v1/train/pause")
    def pause(order: PauseOrder) -> dict[str, str]:
        return {"done": orders.pause_training(order.pause)}

    @app.post("/v1/restart")
    def restart(order: RestartOrder) -> dict[str, str]:
        return {"done": orders.restart(order.children)}

    @app.post("/v1/drafts/use")
    def use(order: UseOrder) -> dict[str, str]:
        return {"done": orders.use_draft(order.version)}

    return app


class ControlServer:
    """Serves the API from a thread of its own until `close`."""

    def __init__(self, path: Path, orders: Orders) -> None:
        """Listens when this returns. The caller holds the state lock, so a socket file found there is a dead one."""
        self._path = path
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        self._own = path.stat()
        listener.listen(64)
        config = uvicorn.Config(control_app(orders), log_config=None, access_log=False, lifespan="off")
        config.timeout_graceful_shutdown = 2
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=5)
        with suppress(OSError):  # the folder may be gone, or another appliance's
            if os.path.samestat(self._path.stat(), self._own):
                self._path.unlink()
