"""The trainer process: commands as JSON lines on stdin, events as JSON lines on a descriptor of their own.

Commands: {"cmd": "train", "served": 7}, {"cmd": "choose", "served": 7, "among": [5]} (without `among`: any versions
that were kept, `figures` {"5": {"code": 1.8}} saying how they differ), {"cmd": "cancel"}, {"cmd": "stop"}.
Events: ready, coverage, progress, alive, gate, published, cycle_end, pool, error. stdout and stderr are the log. The
end of stdin means that the supervisor is gone: the process ends.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tide_cli.errors import TideError
from tide_cli.training.config import TrainingConfig

_Command = dict[str, Any]
_STOP: _Command = {"cmd": "stop"}
_ALIVE_SECONDS = 5.0  # between two signs of life while it works
MEMORY_REMEDY = "end what else uses the GPU (`nvidia-smi`), or lower batch_tokens or max_sample_tokens (`tide config`)"


class TeamError(TideError):
    """The processes that train together cannot go on: this one must end, and be started again with all of them."""


class NoMemoryError(TideError):
    """The device has too little memory for a step, which was not taken: training can go on with the next one."""


class Events:
    """Writes events, one JSON object a line."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8")

    def __call__(self, event: dict[str, Any]) -> None:
        self._file.write(json.dumps(event) + "\n")


class SignsOfLife:
    """`alive` events, every few seconds at most, from the places in the work where it is called."""

    def __init__(self, events: Events) -> None:
        self._events, self._last = events, 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last >= _ALIVE_SECONDS:
            self._last = now
            self._events({"event": "alive"})


class Inbox:
    """Commands that have arrived, read on a thread: one must be noticed between two optimiser steps."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._queue: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._waiting: _Command | None = None
        self.stopping = False
        threading.Thread(target=self._receive, args=(lines,), name="commands", daemon=True).start()

    def _receive(self, lines: Iterable[str]) -> None:
        try:
            for line in lines:
                if not line.strip():
                    continue
                try:
                    command = json.loads(line)
                    self._queue.put(command if isinstance(command, dict) else {"cmd": command})
                except json.JSONDecodeError:
                    self._queue.put({"cmd": line.strip()})
        finally:
            self._queue.put(_STOP)

    def next(self) -> _Command:
        """The next command, waited for. 'stop' from the moment that one has arrived."""
        if self.stopping:
            return _STOP
        command, self._waiting = self._waiting, None
        command = command or self._queue.get()
        self.stopping = command.get("cmd") == "stop"
        return command

    def check(self) -> None:
        """Raise Cancelled when a cancel or stop has arrived. A train command meanwhile waits; the newest one counts."""
        from tide_cli.training.cycle import Cancelled

        while not self._queue.empty():
            command = self._queue.get()
            match command.get("cmd"):
                case "stop":
                    self.stopping = True
                    raise Cancelled
                case "cancel":
                    self._waiting = None
                    raise Cancelled
                case _:
                    self._waiting = command


def run(config: TrainingConfig, descriptor: int) -> int:
    """Serve commands until stop or the end of stdin. Returns the exit code."""
    started = time.monotonic()
    events = Events(descriptor)
    inbox = Inbox(sys.stdin)
    try:
        _serve(config, events, inbox, started)
    except BrokenPipeError:
        return 0  # nobody listens any more
    except TeamError as error:
        with suppress(BrokenPipeError):
            _report(events, error)
        os._exit(1)  # an orderly end would wait for a process that is gone; the helpers die with this one
    except TideError as error:
        _report(events, error)
        return 1
    return 0


def _serve(config: TrainingConfig, events: Events, inbox: Inbox, started: float) -> None:
    import torch

    torch.set_num_threads(config.threads)
    if config.memory:  # more would be missing to the engine; an allocation beyond it fails here, as on a full GPU
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, config.memory / whole))
    from tide_cli.training.cycle import Cycles

    alive = SignsOfLife(events)

    def check() -> None:
        alive()
        inbox.check()

    cycles = Cycles(config, events, check)
    events({"event": "ready", "seconds": round(time.monotonic() - started, 3)})
    while True:
        command = inbox.next()
        match command.get("cmd"):
            case "stop":
                cycles.save()
                cycles.team.close()
                return
            case "cancel":
                continue  # no cycle runs
            case "train" | "choose" if type(command.get("served")) is int:
                try:
                    if command["cmd"] == "train":
                        cycles.run(command["served"])
                    else:
                        cycles.choose(command["served"], command.get("among"), command.get("figures"))
                except TeamError:
                    raise
                except BrokenPipeError:
                    cycles.save()
                    raise
                except Exception as error:  # one bad cycle must not end the process
                    _report(events, error)
            case _:
                events({"event": "error", "message": f"not a command: {json.dumps(command)}"})


def _report(events: Events, error: Exception) -> None:
    if isinstance(error, TideError):
        message = "; ".join(error.lines())
    else:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which may not be imported yet
            message += f"; {MEMORY_REMEDY}"
    print(message, file=sys.stderr, flush=True)
    events({"event": "error", "message": message})
