"""The other end of the control socket, for commands that must start quickly: standard library only."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from tide_cli.errors import NotRunningError, TideError, reason

STATUS_VERSION = 2  # of the fields of GET /v1/status: they are only added to; docs/telemetry.md says what each means

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


def ask(path: Path, method: str, resource: str, body: dict[str, Any] | None = None, timeout: float = 60.0) -> Any:
    """One request over the socket at `path`; returns the decoded JSON.

    Raises NotRunningError where nobody listens, NoAnswerError where one did, TideError where the order is refused.
    """
    connection = _UnixConnection(path, timeout)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, resource, None if body is None else json.dumps(body), headers)
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
        raise NoAnswerError(
            "the supervisor does not answer",
            why=reason(error),
            remedy="try again; `tide down --now` ends it in any case",
        ) from None
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


def _another(path: Path, why: str) -> TideError:
    return TideError(
        f"what answers at {path} is another version of TIDE, or something else",
        why=why,
        remedy="`tide down --now` ends an appliance; `tide up` starts one of this version",
    )
