"""Questions to /proc: who is this process, in which group is it, and whose child was it once?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SGLANG = "sglang::"  # how the titles of SGLang's processes begin


@dataclass(frozen=True)
class ProcessStat:
    """From /proc/PID/stat. start: clock ticks since boot; with pid and boot id it names a process for good."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start: int

    @property
    def running(self) -> bool:
        """Zombies have ended: they hold no port, no memory and no device."""
        return self.state not in "ZX"


def boot_id() -> str:
    """The kernel's name for this boot: a recorded pid means nothing after another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_stat(pid: int) -> ProcessStat | None:
    """None where there is no such process (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets
    return ProcessStat(pid, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def processes() -> Iterator[ProcessStat]:
    """Every process that has not ended."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            stat = process_stat(int(entry.name))
            if stat is not None and stat.running:
                yield stat


def environment(pid: int) -> list[bytes]:
    """The NAME=value entries the process was started with; none where they may not be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def environment_has(pid: int, entries: tuple[bytes, ...]) -> bool:
    """Whether the environment the process was started with holds all of these NAME=value entries (at least one)."""
    found = environment(pid)
    return bool(entries) and all(entry in found for entry in entries)


def memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot, on the whole machine."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def command_line(pid: int) -> list[str]:
    """Program and arguments, or the title the process has given itself; an empty text where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
    except OSError:
        return [""]


def sglang_title(pid: int) -> str | None:
    """The name by which a process of SGLang's calls itself: 'scheduler', 'detokenizer', …; None for any other."""
    title = command_line(pid)[0]
    return title.removeprefix(_SGLANG) if title.startswith(_SGLANG) else None


def same_process(stat: ProcessStat) -> bool:
    """Whether that very process still runs: the pid may have gone to another one meanwhile."""
    now = process_stat(stat.pid)
    return now is not None and now.running and now.start == stat.start
