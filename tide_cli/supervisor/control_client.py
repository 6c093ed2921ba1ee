"""The other end of the control socket, for commands that must start quickly: standard library only."""

from __future__ import annotations

import http.client
import json
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tide_cli.errors import NotRunningError, TideError, reason
from tide_cli.supervisor.procfs import process_stat

STATUS_VERSION = 2  # of the fields of GET /v1/status: they are only added to; docs/telemetry.md says what each means

_QUESTION_WITHIN = 10.0  # seconds; whoever waits for an answer looks at a terminal
_ORDER_WITHIN = 150.0  # the supervisor gives itself 120 for one
_PATIENCE = 3.0  # seconds of silence after which one looks why
UP_REMEDY = "`tide up` starts one; --state-dir or TIDE_STATE_DIR names another folder"


class NoAnswerError(TideError):
    """It listens, and did not answer in time, or ended before it had."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(
    path: Path,
    method: str,
    resource: str,
    body: dict[str, Any] | None = None,
    timeout: float | None = None,
    waits: Callable[[], None] = lambda: None,
) -> Any:
    """One request over the socket at `path`; returns the decoded JSON. timeout: seconds, by default few for a GET.

    waits: called where an answer does not come at once, but still may. Raises NotRunningError where nobody listens,
    NoAnswerError where one did, and at once where it is stopped, TideError where the order is refused.
    """
    timeout = timeout or (_QUESTION_WITHIN if method == "GET" else _ORDER_WITHIN)
    connection = _UnixConnection(path, timeout)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, resource, None if body is None else json.dumps(body), headers)
        if not select.select([connection.sock], [], [], min(_PATIENCE, timeout))[0]:
            if _is_stopped(_listener(connection)):
                raise TimeoutError("it is stopped")
            waits()
        response = connection.getresponse()
        content = response.read()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise NotRunningError(
            f"no appliance runs on {path.parent if path.name == 'control.sock' else path}",
            remedy=UP_REMEDY,
        ) from None
    except PermissionError:
        raise TideError(f"{path} belongs to another user", remedy="name your own with --state-dir") from None
    except (OSError, http.client.HTTPException) as error:
        pid = _listener(connection)
        why, remedy = reason(error), "try again; `tide down --now` ends it in any case"
        if _is_stopped(pid):
            why, remedy = "it is stopped", f"`kill -CONT {pid}` lets it go on; `tide down --now` ends it in any case"
        elif isinstance(error, TimeoutError):
            why = f"nothing came within {timeout:.0f} s"
        who = f"the supervisor (process {pid})" if pid else "the supervisor"
        raise NoAnswerError(f"{who} does not answer", why=why, remedy=remedy) from None
    finally:
        connection.close()
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise _another(path, f"it answered {resource} with {response.status} and no JSON") from None
    if response.status != 200:
        if not isinstance(answer, dict) or not isinstance(answer.get("error"), str):
            raise _another(path, f"it answered {resource} with {response.status}")
        remedy = answer.get("remedy")
        raise TideError(answer["error"], remedy=remedy if isinstance(remedy, str) else None)
    if resource == "/v1/status" and (not isinstance(answer, dict) or answer.get("version") != STATUS_VERSION):
        raise _another(path, f"its status is not of version {STATUS_VERSION}")
    return answer


def _listener(connection: http.client.HTTPConnection) -> int:
    """Pid of whoever listens at the other end; 0 where that cannot be told."""
    if connection.sock is None:
        return 0
    try:
        pid, *_ = struct.unpack("3i", connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:  # never connected
        return 0
    return int(pid)


def _is_stopped(pid: int) -> bool:
    stat = process_stat(pid) if pid else None
    return stat is not None and stat.state in "Tt"


def _another(path: Path, why: str) -> TideError:
    return TideError(
        f"what answers at {path} is another version of TIDE, or something else",
        why=why,
        remedy="`tide down --now` ends an appliance; `tide up` starts one of this version",
    )
