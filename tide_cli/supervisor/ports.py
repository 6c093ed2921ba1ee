"""Is the port free? Asked before minutes are spent on loading a model."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tide_cli.errors import UsageError, reason

LOOPBACK = "127.0.0.1"
_NEARBY = 200  # ports tried after a taken one, before any free one is named


def check_port(host: str, port: int) -> None:
    """Raises UsageError where the engine could not listen there, naming who does, and a port to try instead."""
    try:
        _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} on {host} is taken" + _holder(port), remedy=f"try --port {_free_port(host, port)}"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise UsageError(f"port {port} needs rights you lack", remedy="choose a --port from 1024 on") from None
        raise _foreign(host, error) from None
    with reserved(port):
        pass


@contextmanager
def reserved(port: int) -> Iterator[None]:
    """Keeps other appliances of this machine away from a port, at whatever address, while the engine does not listen.

    By a name in the kernel that ends with this process, however it ends, and is as far-reaching as the port itself:
    an abstract Unix socket belongs to a network namespace (unix(7)). Raises UsageError where another has it.
    """
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(_reservation(port))
            name.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"port {port} belongs to another appliance{_reserved_by(port)}", remedy="choose another --port"
                ) from None
        yield


def _reservation(port: int) -> str:
    return f"\0tide-port-{port}"


def _reserved_by(port: int) -> str:
    """' (pid N)', or nothing where its holder has just ended."""
    with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
        asking.setblocking(False)  # nobody accepts, and a full queue would make it wait
        asking.connect(_reservation(port))
        pid, _, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f" (pid {pid})"
    return ""


def check_host(host: str) -> None:
    """Raises UsageError where this machine has no such address; whether a port is free is not asked."""
    try:
        _bind(host, 0)
    except OSError as error:
        raise _foreign(host, error) from None


def _foreign(host: str, error: OSError) -> UsageError:
    return UsageError(f"cannot listen on {host}", why=reason(error), remedy="--host takes an address of this machine")


def check_metrics_port(port: int) -> None:
    """Raises UsageError where TIDE's metrics could not be given out there."""
    try:
        _bind(LOOPBACK, port)
    except OSError as error:
        raise UsageError(
            f"metrics_port: cannot listen on port {port}", why=reason(error), remedy="choose another"
        ) from None


def _bind(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is no obstacle
        probe.bind(address)
        probe.listen(1)
        return int(probe.getsockname()[1])


def _free_port(host: str, taken: int) -> int:
    for port in range(taken + 1, min(taken + _NEARBY, 65536)):
        try:
            return _bind(host, port)
        except OSError:
            continue
    return _bind(host, 0)


def _holder(port: int) -> str:
    """' by NAME (pid N)', or nothing where it belongs to another user."""
    import psutil

    from tide_cli.supervisor.family import belongs_to_appliance

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                name = "another appliance" if belongs_to_appliance(connection.pid) else process.name()
                return f" by {name} (pid {connection.pid})"
    except psutil.Error:
        pass
    return ""
