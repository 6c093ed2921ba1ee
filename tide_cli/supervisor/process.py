"""One child process and everything that descends from it. Knows nothing of the other children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli import exec_child
from tide_cli.hardware.affinity import keep_to
from tide_cli.supervisor.family import Mark, end_family, find_family, send
from tide_cli.supervisor.logs import open_log, read_tail
from tide_cli.supervisor.procfs import ProcessStat, process_stat, same_process, sglang_title
from tide_cli.supervisor.shared_memory import remove_shared_memory, shared_memory_of

_STRAGGLERS_GRACE = 2.0  # seconds between TERM and KILL for what a child leaves behind when it ends


@dataclass(frozen=True)
class ChildSpec:
    """argv and env (whole); cores to run on; log file; mark that its descendants inherit.

    start_cores: those it begins on, until `settle`, where they are not the same.
    talks: takes JSON lines on stdin and writes JSON lines to the descriptor that is appended to argv.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cores: Sequence[int]
    log: Path
    mark: Mark
    talks: bool = False
    start_cores: Sequence[int] = ()


class ChildProcess:
    """A running child. Must be created by the thread that lives as long as the supervisor (see exec_child).

    on_exit(code, end of its log) is called once, from another thread, when child and descendants have ended;
    on_event(event) for each line of a child that talks.
    """

    def __init__(
        self,
        spec: ChildSpec,
        on_exit: Callable[[int, str], None],
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._spec = spec
        self._on_exit, self._on_event = on_exit, on_event
        self.shared_memory: set[Path] = set()
        argv = exec_child.bound(spec.start_cores or spec.cores, spec.argv)
        events, events_end = os.pipe() if spec.talks else (None, None)
        try:
            with open_log(spec.log) as log:
                self.log_start = os.fstat(log.fileno()).st_size
                self._popen = subprocess.Popen(
                    argv if events_end is None else [*argv, str(events_end)],
                    stdin=subprocess.PIPE if spec.talks else subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**spec.env, **spec.mark.environment()},
                    pass_fds=() if events_end is None else (events_end,),
                    start_new_session=True,
                )
        except BaseException:
            if events is not None:
                os.close(events)
            raise
        finally:
            if events_end is not None:
                os.close(events_end)
        self._parts: dict[int, tuple[ProcessStat, str]] = {}
        self.pid = self._popen.pid
        self.stat = process_stat(self.pid)
        reader = None
        if events is not None:
            reader = threading.Thread(target=self._read_events, args=(events,), name=f"events-{self.pid}", daemon=True)
            reader.start()
        threading.Thread(target=self._watch, args=(reader,), name=f"watch-{self.pid}", daemon=True).start()

    def tell(self, command: Mapping[str, Any]) -> None:
        """One command on the child's stdin. A child that has just ended does not hear it; its exit will be news."""
        try:
            self._popen.stdin.write(json.dumps(command).encode() + b"\n")
            self._popen.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def note_parts(self) -> None:
        """Remember the processes it now consists of that bear a title of SGLang's: scheduler, detokenizer, …

        And what is to be removed when they have ended: while they run, their maps tell which shared memory is theirs.
        """
        self._note_shared_memory()
        for stat in self._family():
            if title := sglang_title(stat.pid):
                self._parts[stat.pid] = stat, title

    def settle(self) -> None:
        """It has started: keep it to its own cores from now on."""
        if self._spec.start_cores:
            for stat in self._family():
                with suppress(OSError):  # it is ending
                    keep_to(self._spec.cores, stat.pid)

    def lost_parts(self) -> list[str]:
        """Titles of those that have ended. SGLang itself may take a minute to see that one is gone.

        Nothing where the child itself has ended, which takes them along: its own end is news soon, and says why.
        """
        if self._popen.poll() is not None:
            return []
        return [title for stat, title in self._parts.values() if not same_process(stat)]

    def terminate(self) -> None:
        """TERM to the child itself: it ends its own descendants in order, or they are ended after it."""
        self._note_shared_memory()
        if self._popen.returncode is None:
            self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """KILL to the whole family."""
        self._note_shared_memory()
        send(self._family(), signal.SIGKILL)

    def _note_shared_memory(self) -> None:
        """One that ends on the way up has not been asked for its parts."""
        found = shared_memory_of(stat.pid for stat in self._family())
        self.shared_memory = self.shared_memory | found  # other threads read it

    def _family(self) -> list[ProcessStat]:
        return find_family(self._spec.mark, self.pid)

    def _watch(self, reader: threading.Thread | None) -> None:
        code = self._popen.wait()
        self._note_shared_memory()  # of descendants that have not ended yet
        if not end_family(self._family, grace=_STRAGGLERS_GRACE):
            remove_shared_memory(self.shared_memory)
        if reader is not None:
            reader.join()
        if self._popen.stdin is not None:
            with suppress(BrokenPipeError):
                self._popen.stdin.close()
        self._on_exit(code, read_tail(self._spec.log, self.log_start))

    def _read_events(self, events: int) -> None:
        with open(events, "rb") as pipe:
            for line in pipe:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # a line cut off by the child's end
                if isinstance(event, dict) and self._on_event is not None:
                    self._on_event(event)
