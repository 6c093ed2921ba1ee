"""From settings to a running appliance and back to nothing: checks, lock, leftovers, control socket, loop, outcome."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from tide_cli.drafts.store import DraftStore
from tide_cli.errors import ExitCode, TideError, UsageError, reason
from tide_cli.file_locks import is_locked
from tide_cli.hardware.plan_settings import plan_for, target_shape
from tide_cli.json_files import read_object
from tide_cli.paths import Paths
from tide_cli.printable import many, size_words
from tide_cli.settings import Settings
from tide_cli.spool.ring import RING_FILE
from tide_cli.supervisor.journal import event_line
from tide_cli.supervisor.leftovers import find_leftovers, reap_leftovers
from tide_cli.supervisor.lock import StateLock, make_private
from tide_cli.supervisor.logs import open_log
from tide_cli.supervisor.own_machine import own_inventory
from tide_cli.supervisor.ports import LOOPBACK, check_host, check_metrics_port, check_port, reserved
from tide_cli.supervisor.run import Supervisor
from tide_cli.supervisor.specs import Workshop, free_disk, reservoir_size, spool_size, spool_size_ignored
from tide_cli.supervisor.status import reachable
from tide_cli.supervisor.values import check_values

OnEvent = Callable[[dict[str, Any]], None]

_LEAST_FREE = 512 * 2**20  # bytes: logs, database and some drafts


def check_settings(settings: Settings) -> Workshop:
    """Everything that can be wrong before anything is written. Raises TideError or UsageError."""
    workshop = check_machine(settings)
    paths = settings.paths
    _check_scratch(paths)
    if not is_locked(paths.lock) and not find_leftovers(paths.state, paths.run / "children.json"):
        _check_ports(settings)
        _check_disk(workshop)
        if shape := target_shape(workshop.target):
            workshop.check_spool(shape.hidden_size)
    return workshop


def check_machine(settings: Settings) -> Workshop:
    """What would be refused on this machine whenever it is tried. Raises UsageError."""
    target = check_values(settings)
    check_host(settings.host)
    return Workshop(settings, plan_for(settings, target, own_inventory(settings.paths)), target)


@contextmanager
def running_appliance(workshop: Workshop, on_event: OnEvent) -> Iterator[Supervisor]:
    """A supervisor ready to `run`, with lock and control socket; both are given back at the end.

    workshop: from `check_settings`. Writes the outcome for those who wait for a detached appliance. Raises TideError
    where the appliance cannot be started; no process has been then.
    """
    settings, paths = workshop.settings, workshop.paths
    make_private(paths.state)
    lock = StateLock(paths.lock)
    try:
        for folder in (paths.logs, paths.run, paths.spool, paths.drafts, paths.training):
            make_private(folder)
        outcome_file(paths).unlink(missing_ok=True)
        found, remaining = reap_leftovers(paths.state, paths.run / "children.json")
        if remaining:
            pids = ", ".join(str(stat.pid) for stat in remaining)
            raise TideError(
                f"processes of a former appliance cannot be ended (pid {pids})", remedy="restart the machine"
            )
        _check_ports(settings)
        _check_disk(workshop)
        shutil.rmtree(paths.scratch, ignore_errors=True)  # of a former appliance, all of whose processes have ended
        make_private(paths.scratch)
        lock.describe(**_holder(settings))
        with (
            open_log(paths.logs / "supervisor.log") as log,
            reserved(settings.port),
            _control(workshop, lock, _logged(log, on_event)) as supervisor,
        ):
            for note in workshop.plan.notes:
                supervisor.note("plan", note)
            if found:
                supervisor.note("leftovers", f"ended {many(len(found), 'process')} of a former appliance")
            if settings.draft and DraftStore(paths.drafts).latest() is not None:
                supervisor.note("draft_ignored", f"--draft has no effect: {paths.drafts} already has drafts")
            if words := spool_size_ignored(settings):
                supervisor.note("spool_size_ignored", words)
            if settings.speculates and settings.capture:
                text = f"hidden states of prompts and answers are stored in {paths.spool}; --no-capture stores none"
                supervisor.note("captures", text)
            yield supervisor
            if not lock.in_place():
                raise TideError(
                    f"the state folder {paths.state} was removed, moved or emptied, and the appliance has ended",
                    remedy="`tide up` begins anew there",
                )
            core = supervisor.core
            write_outcome(paths, core.exit_code, core.reason or core.stopped_by, core.excerpt)
    except (TideError, OSError) as error:  # something else may be in the place of each file that is made here
        refused = error if isinstance(error, TideError) else _cannot_use(paths, error)
        if lock.in_place():  # else another appliance may have begun there
            write_outcome(paths, int(refused.exit_code), "\n".join(refused.lines()))
        raise refused from None
    finally:
        if lock.in_place() or not is_locked(paths.lock):  # else it is another appliance's
            shutil.rmtree(paths.scratch, ignore_errors=True)
        lock.release()


@contextmanager
def _control(workshop: Workshop, lock: StateLock, on_event: OnEvent) -> Iterator[Supervisor]:
    from tide_cli.engine.client import EngineClient
    from tide_cli.supervisor.control import ControlServer

    settings = workshop.settings
    client = EngineClient(reachable(settings.host), settings.port)
    supervisor = Supervisor(workshop, client, lock.in_place, on_event)
    server = ControlServer(workshop.paths.socket, supervisor)
    try:
        with _metrics_port(supervisor, settings.metrics_port):
            yield supervisor
    finally:
        server.close()


@contextmanager
def _metrics_port(supervisor: Supervisor, port: int | None) -> Iterator[None]:
    """The metrics alone, for a Prometheus that cannot read a Unix socket."""
    if port is None:
        yield
        return
    from prometheus_client import start_http_server

    server, thread = start_http_server(port, addr=LOOPBACK, registry=supervisor.exporter.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _logged(log: BinaryIO, on_event: OnEvent) -> OnEvent:
    def write(event: dict[str, Any]) -> None:
        try:
            log.write(event_line(event).encode() + b"\n")
            log.flush()
        except OSError:
            pass  # a full disk costs the log, not the appliance
        on_event(event)

    return write


def run_with_signals(supervisor: Supervisor) -> int:
    """Run until everything has ended: the first INT, TERM or HUP stops in order, the second one kills."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, supervisor.stop_signal) for number in numbers}
    try:
        return supervisor.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def outcome_file(paths: Paths) -> Path:
    """How the last appliance of this state folder ended."""
    return paths.run / "outcome.json"


def write_outcome(paths: Paths, code: int, reason: str | None, excerpt: Sequence[str] = ()) -> None:
    outcome = {"code": code, "reason": reason, "excerpt": list(excerpt), "time": time.time()}
    with suppress(OSError):  # a full disk; the exit code says it too
        outcome_file(paths).write_text(json.dumps(outcome))


def read_outcome(paths: Paths) -> dict[str, Any] | None:
    """{'code', 'reason', 'excerpt', 'time'}; None where no appliance has ended here."""
    try:
        return read_object(outcome_file(paths))
    except (OSError, ValueError):
        return None


def outcome_error(outcome: dict[str, Any]) -> TideError:
    """The reason an appliance ended for, as an error to show."""
    first, *rest = str(outcome.get("reason") or "the appliance ended").split("\n")
    if outcome.get("code") == ExitCode.DONE:
        return TideError("the appliance was ended before it was ready", why=first, remedy="`tide up` starts it again")
    kind = UsageError if outcome.get("code") == ExitCode.USAGE else TideError
    remedy = "; ".join(rest) or "`tide logs engine` and `tide logs supervisor` say more"
    return kind(first, remedy=remedy, excerpt=outcome.get("excerpt", ()))


def _cannot_use(paths: Paths, error: OSError) -> TideError:
    place = paths.state if error.filename is None else os.fsdecode(error.filename)
    return TideError(f"cannot use {place}", why=reason(error), remedy="mend that, or pass --state-dir")


def _holder(settings: Settings) -> dict[str, Any]:
    """What other commands may want to know of a running appliance without its settings."""
    return {
        "pid": os.getpid(),
        "host": settings.host,
        "port": settings.port,
        "target": settings.target,
        "stop_timeout": settings.stop_timeout,
    }


def _check_scratch(paths: Paths) -> None:
    """It is emptied at every start: where it is in the state folder, it must not be somebody's."""
    if paths.scratch.parent != paths.state or paths.database.exists():
        return
    # one that starts just now holds the lock and has its scratch folder before it has a database
    if paths.scratch.exists() and not is_locked(paths.lock):
        raise UsageError(
            f"{paths.scratch} is in the way",
            why="an appliance empties it, and none has made it",
            remedy="pass --state-dir with a new folder, or move that one away",
        )


def _check_ports(settings: Settings) -> None:
    check_port(settings.host, settings.port)
    if settings.metrics_port is not None:
        check_metrics_port(settings.metrics_port)


def _check_disk(workshop: Workshop) -> None:
    paths, settings = workshop.paths, workshop.settings
    free = free_disk(paths.state)
    ring = kept = 0
    # beside a ring that is there the old samples take what room they find
    if settings.speculates and settings.capture and not (paths.spool / RING_FILE).exists():
        ring, shape = spool_size(settings), target_shape(workshop.target)
        kept = reservoir_size(settings, shape.hidden_size) if shape and workshop.plan.train else 0
    if free < _LEAST_FREE + ring + kept:
        sizes = f"its spool {size_words(ring)}, old samples {size_words(kept)}"
        raise TideError(
            f"only {size_words(free)} are free under {paths.state}",
            why=f"an appliance needs {size_words(_LEAST_FREE)}, {sizes}",
            remedy="free some space, ask for a smaller --spool-size, or pass --state-dir on another disk",
        )
