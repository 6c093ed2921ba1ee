"""The folder of a shift experiment: what an interrupted one goes on with, and the report so far."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tide_cli.bench.adapt_options import OWN_SETTINGS, AdaptOptions
from tide_cli.bench.arms import half_copied
from tide_cli.bench.results import Results
from tide_cli.errors import TideError, UsageError, reason

RESULTS_FILE, REPORT_FILE = "results.jsonl", "report.json"
ANOTHER = "name another folder"


def open_results(
    folder: Path, options: AdaptOptions, settings: Mapping[str, Any], script: str, environment: Mapping[str, Any]
) -> Results:
    """Those of an interrupted run of the same kind, else new ones. UsageError where other ones are there.

    settings: of every arm, in force now; script: digest of the requests; environment: see `take_environment`. A run
    that is older than these has none of them and is taken as it is.
    """
    path = folder / RESULTS_FILE
    if path.is_file() and not path.stat().st_size:
        path.unlink()  # killed before its first line
    if not path.exists():
        _check_new(folder)
        head = {"options": options.to_json(), "settings": dict(settings), "script": script}
        return Results.begin(path, "adapt", head | {"environment": dict(environment)})
    found = Results.resume(path, "adapt")
    had, under = found.head.get("options"), found.head.get("settings", {})
    for name, value in (("options", had), ("settings", under), ("environment", found.head.get("environment", {}))):
        if not isinstance(value, dict):
            raise UsageError(f"{folder} cannot be gone on with", why=f"its first line names no {name}", remedy=ANOTHER)
    changed = options.differs_from(had)
    changed += [f"the setting {name}" for name in sorted(under.keys() & settings) if under[name] != settings[name]]
    if not changed and found.head.get("script", script) != script:
        changed = ["the prompts of the workload" + (" or the trace" if options.trace else "")]
    if changed:
        raise UsageError(
            f"{folder} holds another run",
            why=f"it differs in {', '.join(changed)}",
            remedy=f"give the same ones to go on with it, or {ANOTHER}",
        )
    return found


def _check_new(folder: Path) -> None:
    """UsageError where something stands in the place of an arm's state: it would be taken for that, or removed."""
    names = [name for arm in OWN_SETTINGS for name in (arm, half_copied(arm))]
    if taken := [name for name in names if os.path.lexists(folder / name)]:
        raise UsageError(
            f"{folder} holds {' and '.join(taken)} already",
            why="the drafts and samples of the experiment have to lie there",
            remedy="name a new folder",
        )


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """In one step, so that a reader finds a whole one. TideError where that cannot be."""
    path, unfinished = folder / REPORT_FILE, folder / f".{REPORT_FILE}"
    try:
        unfinished.write_text(json.dumps(report, indent=1))
        os.replace(unfinished, path)
    except OSError as error:
        raise TideError(f"cannot write {path}", why=reason(error)) from None
