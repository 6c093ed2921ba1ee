"""`tide doctor`: is everything here that an appliance needs?"""

from __future__ import annotations

from typing import Annotated

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json
from tide_cli.cli.setting_options import WHOLE, flag
from tide_cli.cli.where import Config, Json, StateDir, settings_for

_MARKS = {True: "ok  ", False: "FAIL"}


@app.command()
def doctor(
    state_dir: StateDir = None,
    port: Annotated[str | None, flag("--port", "Port to try.", WHOLE)] = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Check Python, packages, SGLang's hook points, devices, memory, disk, port and leftovers."""
    from tide_cli.supervisor.checkup import check_up

    findings = []
    for finding in check_up(settings_for(state_dir, config, port=port)):
        findings.append(finding)
        if not json:
            print(f"{_MARKS[finding.ok]} {finding.name:<12} {finding.text}", flush=True)
            if finding.remedy:
                print(f"     {'':<12} {finding.remedy}", flush=True)
    if json:
        print_json([vars(finding) for finding in findings])
    return 0 if all(finding.ok for finding in findings) else 1
