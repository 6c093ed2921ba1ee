"""Commands about draft versions."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import print_json, print_table
from tide_cli.cli.running import order
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import NotRunningError, TideError

drafts_app = typer.Typer(help="Versions of the draft.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(drafts_app, name="drafts")


@drafts_app.command("ls")
def ls(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """List the published versions."""
    from tide_cli.drafts.store import DraftStore, version_name
    from tide_cli.supervisor.journal import read_served

    paths = appliance_paths(state_dir, config)
    store, served = DraftStore(paths.drafts), read_served(paths.database)
    rows = []
    for version in store.versions():
        try:
            manifest = store.manifest(version)
        except TideError as error:
            rows.append({"version": version_name(version), "served": version == served, "error": error.lines()[0]})
            continue
        gate = manifest.gate or {}
        rows.append(
            {
                "version": version_name(version),
                "served": version == served,
                "parent": None if manifest.parent is None else version_name(manifest.parent),
                "target": manifest.target,
                "samples": manifest.samples,
                "tokens": manifest.tokens,
                "gain": gate.get("gain"),
                "created": manifest.created,
                "error": None,
            }
        )
    if json:
        print_json(rows)
        return
    print_table(
        ("version", "served", "parent", "tokens", "gain", "created", "error"),
        [
            (
                row["version"],
                "yes" if row["served"] else "",
                row.get("parent"),
                row.get("tokens"),
                None if row.get("gain") is None else f"{row['gain']:+.3f}",
                time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"])) if "created" in row else None,
                row["error"],
            )
            for row in rows
        ],
    )


@drafts_app.command("use")
def use(
    version: Annotated[str, typer.Argument(help="For example v0007 or 7.")],
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Serve a version, whatever the gate says; without a running appliance, from the next start on."""
    from tide_cli.drafts.store import DraftStore, parse_version, version_name
    from tide_cli.supervisor.journal import Journal
    from tide_cli.supervisor.lock import StateLock

    number, paths = parse_version(version), appliance_paths(state_dir, config)
    try:
        print(order(paths, "/v1/drafts/use", {"version": number}))
        return
    except NotRunningError:
        DraftStore(paths.drafts).verify(number)
    lock = StateLock(paths.lock)
    try:
        journal = Journal(paths.database)
        journal.serve(number)
        journal.note("use", f"{version_name(number)} asked for by the user", {"version": number})
        journal.close()
    finally:
        lock.release()
    print(f"{version_name(number)} will be served from the next `tide up` on")
