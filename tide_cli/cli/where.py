"""Which appliance a command speaks of, found without loading the settings machinery where possible."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.output import complain
from tide_cli.paths import Paths, config_file, default_cache_dir, default_state_dir

if TYPE_CHECKING:
    from tide_cli.settings import Settings

StateDir = Annotated[Path | None, typer.Option("--state-dir", help="Folder of the appliance.", show_default=False)]
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (TOML).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def appliance_paths(state_dir: Path | None, config: Path | None = None) -> Paths:
    """The paths of the appliance in question; the settings are loaded only where a settings file may name it."""
    variable = os.environ.get("TIDE_STATE_DIR") or None
    if state_dir is None and variable is None and config_file(config) is not None:
        return settings_for(None, config).paths
    return Paths.under(state_dir or Path(variable or default_state_dir()), default_cache_dir())


def settings_for(state_dir: Path | None, config: Path | None, **flags: Any) -> Settings:
    """The settings in force. Raises UsageError."""
    from tide_cli.settings import load_settings, unknown_variables

    if unknown := unknown_variables():
        complain([f"{', '.join(unknown)} in the environment: no such setting; `tide config` lists them"])
    return load_settings({"state_dir": state_dir, **flags}, config)
