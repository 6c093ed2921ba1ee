"""Commands about the installation: config, paths, version."""

from __future__ import annotations

from typing import Any

from tide_cli import __version__
from tide_cli.cli.app import app
from tide_cli.cli.output import print_json, print_table
from tide_cli.cli.setting_options import CacheDir
from tide_cli.cli.where import Config, Json, StateDir, settings_for, settings_with_origins
from tide_cli.paths import config_file, default_config_file


@app.command()
def config(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Every setting: its value, its origin and its meaning."""
    from tide_cli.supervisor.values import check_values

    settings, origins = settings_with_origins(state_dir, config)
    check_values(settings)
    values = settings.model_dump(mode="json")
    rows: list[dict[str, Any]] = [
        {"name": name, "value": values[name], "origin": origins[name], "description": field.description}
        for name, field in type(settings).model_fields.items()
    ]
    if json:
        print_json(rows)
    else:
        print_table(("name", "value", "origin", "description"), [list(row.values()) for row in rows])


@app.command()
def paths(
    state_dir: StateDir = None,
    cache_dir: CacheDir = None,
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
