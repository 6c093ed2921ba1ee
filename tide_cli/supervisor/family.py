"""All processes of a child, wherever they went: its group, and descendants that left it but carry its mark."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tide_cli.supervisor.procfs import ProcessStat, environment, environment_has, process_stat, processes, same_process

_APPLIANCE = "TIDE_APPLIANCE"
_CHILD = "TIDE_CHILD"
_POLL = 0.05  # seconds between two looks at /proc while a family is ending


@dataclass(frozen=True)
class Mark:
    """Environment entries by which an appliance's processes, or one child's of them, are found again.

    Never empty: a mark that fits every process would end every process.
    """

    appliance: str
    child: str | None = None

    def __post_init__(self) -> None:
        if not self.appliance:
            raise ValueError("a mark must name an appliance")

    @classmethod
    def of(cls, state: Path, child: str | None = None) -> Mark:
        """The mark of the processes that serve this state folder. child: those of one child of this process.

        Its pid tells two supervisors apart that use the same path, one of them since its folder was moved there, or
        before it was moved away.
        """
        name = f"{child}-{os.getpid()}" if child else None
        return cls(hashlib.sha256(os.fsencode(state)).hexdigest()[:16], name)

    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to carry this mark."""
        return {_APPLIANCE: self.appliance} | ({_CHILD: self.child} if self.child else {})


def belongs_to_appliance(pid: int) -> bool:
    """Whether the process carries the mark of any appliance."""
    return any(entry.startswith(f"{_APPLIANCE}=".encode()) for entry in environment(pid))


def find_family(mark: Mark, group: int | None = None) -> list[ProcessStat]:
    """Running processes that carry `mark`, or belong to the process group `group`.

    Never this process or one of its ancestors: whoever runs `tide` inside an appliance does not mean himself.
    """
    entries = tuple(os.fsencode(f"{name}={value}") for name, value in mark.environment().items())
    spared = _ourselves()
    return [
        stat
        for stat in processes()
        if stat.pid not in spared
        and ((group is not None and stat.group == group) or environment_has(stat.pid, entries))
    ]


def _ourselves() -> set[int]:
    """This process and its ancestors, pid 1 included."""
    spared, pid = {0, 1}, os.getpid()
    while pid not in spared:
        spared.add(pid)
        stat = process_stat(pid)
        pid = stat.parent if stat else 0
    return spared


def send(members: Iterable[ProcessStat], number: signal.Signals) -> None:
    """Signal each member that is still the same process."""
    for stat in members:
        if same_process(stat):
            with suppress(ProcessLookupError):
                os.kill(stat.pid, number)


def end_family(look: Callable[[], list[ProcessStat]], grace: float, bound: float = 10.0) -> list[ProcessStat]:
    """TERM, after `grace` seconds KILL, until `look` finds nobody or `bound` seconds more have passed.

    Returns those who are still there: only a process that hangs in the kernel survives KILL.
    """
    begun = time.monotonic()
    warned: set[tuple[int, int]] = set()
    while members := look():
        age = time.monotonic() - begun
        if age >= grace:
            send(members, signal.SIGKILL)
        else:
            send([stat for stat in members if (stat.pid, stat.start) not in warned], signal.SIGTERM)
            warned |= {(stat.pid, stat.start) for stat in members}
        if age >= grace + bound:
            return members
        time.sleep(_POLL)
    return []
