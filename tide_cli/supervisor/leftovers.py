"""What a killed supervisor leaves behind, and how it is found and ended: by pid + start time + boot, and by mark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tide_cli.json_files import read_object
from tide_cli.supervisor.family import Mark, end_family, find_family
from tide_cli.supervisor.procfs import ProcessStat, boot_id, process_stat, processes, same_process, sglang_title
from tide_cli.supervisor.shared_memory import recorded_shared_memory, remove_shared_memory, shared_memory_of

_GRACE = 2.0  # seconds between TERM and KILL: nobody waits for what these processes still do


def record_children(path: Path, children: Mapping[str, ProcessStat | None], tables: Iterable[Path] = ()) -> None:
    """Write down which processes run now, so that a later supervisor can end them if this one cannot.

    tables: of theirs, see shared_memory.py; to be removed then.
    """
    known = {name: {"pid": stat.pid, "start": stat.start} for name, stat in children.items() if stat is not None}
    temporary = path.with_suffix(".new")
    content = {"boot": boot_id(), "folder": _identity(path), "children": known, "tables": sorted(map(str, tables))}
    temporary.write_text(json.dumps(content))
    os.replace(temporary, path)


def find_leftovers(state: Path, record: Path) -> list[ProcessStat]:
    """Processes of an appliance that has no supervisor any more. Ask only while its lock is free or ours."""
    mark = Mark.of(state)
    found = find_family(mark)
    for leader in _recorded(record):
        if same_process(leader):
            found += find_family(mark, leader.pid)
        elif (now := process_stat(leader.pid)) is None or now.start == leader.start:
            # its session outlives it; SGLang's processes overwrite the environment that the mark is looked for in
            found += [stat for stat in processes() if stat.session == leader.pid and sglang_title(stat.pid)]
    return list({(stat.pid, stat.start): stat for stat in found}.values())


def reap_leftovers(state: Path, record: Path) -> tuple[list[ProcessStat], list[ProcessStat]]:
    """End them and remove their shared memory. Returns (those found, those of them that even KILL did not end)."""
    found = find_leftovers(state, record)
    tables = shared_memory_of(stat.pid for stat in found) | recorded_shared_memory(_of_this_boot(record).get("tables"))
    remaining = end_family(lambda: find_leftovers(state, record), grace=_GRACE) if found else []
    if not remaining:
        remove_shared_memory(tables)
    record.unlink(missing_ok=True)
    return found, remaining


def _recorded(record: Path) -> list[ProcessStat]:
    try:
        children = _of_this_boot(record)["children"].values()
        return [ProcessStat(int(child["pid"]), "?", 0, 0, 0, int(child["start"])) for child in children]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return []


def was_killed(record: Path) -> bool:
    """Whether the last supervisor has not come to write down that all its processes have ended."""
    return bool(_read(record).get("children"))


def _of_this_boot(record: Path) -> dict[str, Any]:
    """What the record says; nothing where there is none, or one of another boot."""
    content = _read(record)
    return content if content.get("boot") == boot_id() else {}


def _read(record: Path) -> dict[str, Any]:
    """Nothing of a record that was copied with its folder: the processes are the original's."""
    try:
        content = read_object(record)
        return content if content.get("folder") == _identity(record) else {}
    except (OSError, ValueError):
        return {}


def _identity(record: Path) -> list[int]:
    folder = record.parent.stat()
    return [folder.st_dev, folder.st_ino]
