"""`tide doctor`: is everything here that an appliance needs?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json
from tide_cli.cli.setting_options import WHOLE, flag
from tide_cli.cli.where import Config, Json, StateDir, path_option, settings_for
from tide_cli.errors import UsageError
from tide_cli.hints import spelt

_MARKS = {True: "ok  ", False: "FAIL"}


@app.command()
def doctor(
    state_dir: StateDir = None,
    port: Annotated[str | None, flag("--port", "Port to try.", WHOLE)] = None,
    config: Config = None,
    engine: Annotated[
        bool, typer.Option("--engine", help="Instead: everything in SGLang that TIDE relies on, read from its source.")
    ] = False,
    sglang: Annotated[
        Path | None, path_option("--sglang", "With --engine: a folder with another SGLang, such as an unpacked wheel.")
    ] = None,
    json: Json = False,
) -> int:
    """Check whether an appliance could run here.

    Python, packages, SGLang's hook points, devices, memory, disk, port and leftovers.
    """
    if engine:
        return _engine(sglang, json)
    if sglang is not None:
        raise UsageError("--sglang does nothing by itself", remedy="`tide doctor --engine --sglang FOLDER`")
    from tide_cli.supervisor.checkup import check_up

    findings = []
    for finding in check_up(settings_for(state_dir, config, port=port)):
        findings.append(finding)
        if not json:
            print(f"{_MARKS[finding.ok]} {finding.name:<12} {spelt(finding.text)}", flush=True)
            if finding.remedy:
                print(f"     {'':<12} {spelt(finding.remedy)}", flush=True)
    if json:
        print_json([vars(finding) for finding in findings])
    return 0 if all(finding.ok for finding in findings) else 1


def _engine(folder: Path | None, json: bool) -> int:
    from tide_cli.engine.contract_report import report
    from tide_cli.engine.hook_points import SGLANG_VERSION
    from tide_cli.engine.sglang_source import SglangSource

    source = SglangSource.installed() if folder is None else SglangSource.below(folder)
    findings = report(source)
    moved = sum(finding.moved is not None for finding in findings)
    if json:
        contracts = [vars(finding) | {"ok": finding.moved is None} for finding in findings]
        print_json({"sglang": source.version, "expected": SGLANG_VERSION, "moved": moved, "contracts": contracts})
        return 1 if moved else 0
    for finding in findings:
        print(f"{_MARKS[finding.moved is None]} {finding.topic:<18} {finding.what:<52} {finding.where}")
        if finding.moved is not None:
            print(f"     {'':<18} {finding.moved}\n     {'':<18} needed for {finding.purpose}")
    written_for = "" if source.version == SGLANG_VERSION else f", which TIDE is not written for ({SGLANG_VERSION})"
    found = f"{moved} of {len(findings)} contracts have moved" if moved else f"{len(findings)} contracts as expected"
    print(f"SGLang {source.version}{written_for}: {found}")
    if moved:
        print(f"`./install.sh` installs SGLang {SGLANG_VERSION}, which has them all")
    return 1 if moved else 0
