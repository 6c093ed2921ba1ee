"""What a killed supervisor leaves behind, and how it is found and ended: by pid + start time + boot, and by mark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tide_cli.supervisor.family import Mark, end_family, find_family
from tide_cli.supervisor.procfs import ProcessStat, boot_id, process_stat, processes, same_process, sglang_title

_GRACE = 2.0  # seconds between TERM and KILL: nobody waits for what these processes still do


def record_children(path: Path, children: Mapping[str, ProcessStat | None]) -> None:
    """Write down which processes run now, so that a later supervisor can end them if this one cannot."""
    known = {name: {"pid": stat.pid, "start": stat.start} for name, stat in children.items() if stat is not None}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"boot": boot_id(), "children": known}))
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
    """End them. Returns (those that were found, those of them that even KILL did not end)."""
    found = find_leftovers(state, record)
    remaining = end_family(lambda: find_leftovers(state, record), grace=_GRACE) if found else []
    record.unlink(missing_ok=True)
    return found, remaining


def _recorded(record: Path) -> list[ProcessStat]:
    try:
        content = json.loads(record.read_text())
        if content["boot"] != boot_id():
            return []
        return [ProcessStat(int(c["pid"]), "?", 0, 0, 0, int(c["start"])) for c in content["children"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
