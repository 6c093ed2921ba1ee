"""Commands about the installation: config, paths, version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli import __version__
from tide_cli.cli.app import app
from tide_cli.cli.output import print_json, print_table
from tide_cli.cli.where import Config, Json, StateDir, settings_for
from tide_cli.paths import config_file, default_config_file


@app.command()
def config(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Every setting: its value, where that comes from, and what it means."""
    from tide_cli.settings import Settings

    settings = settings_for(state_dir, config)
    in_file = _names_in(config_file(config))
    values = settings.model_dump(mode="json")
    rows: list[dict[str, Any]] = []
    for name, field in Settings.model_fields.items():
        flag = name == "state_dir" and state_dir is not None
        environment = f"TIDE_{name.upper()}" in {variable.upper() for variable in os.environ}
        origin = "flag" if flag else "environment" if environment else "file" if name in in_file else "default"
        rows.append({"name": name, "value": values[name], "origin": origin, "description": field.description})
    if json:
        print_json(rows)
    else:
        print_table(("name", "value", "origin", "description"), [list(row.values()) for row in rows])


def _names_in(file: Path | None) -> set[str]:
    """Names of the settings in a file that has just been read without complaint."""
    import tomllib

    return set(tomllib.loads(file.read_text())) if file else set()


@app.command()
def paths(
    state_dir: StateDir = None,
    cache_dir: Annotated[Path | None, typer.Option("--cache-dir", help="Folder of converted targets.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Every folder and file TIDE uses."""
    found = settings_for(state_dir, config, cache_dir=cache_dir).paths.as_dict()
    found["settings"] = str((config_file(config) or default_config_file()).absolute())
    if json:
        print_json(found)
    else:
        print_table(("name", "path"), list(found.items()))


@app.command()
def version() -> None:
    """The version of TIDE."""
    print(f"tide {__version__}")
