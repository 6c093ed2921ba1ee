"""Which appliance a command speaks of, found without loading the settings machinery where possible."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.output import complain
from tide_cli.errors import UsageError
from tide_cli.paths import Paths, config_file, default_cache_dir, default_state_dir

if TYPE_CHECKING:
    from tide_cli.settings import Settings


def _named(text: str) -> Path:
    """A path from the command line: an empty one is a variable that was not set, not the current folder."""
    if not text:
        raise typer.BadParameter("an empty path names nothing")
    return Path(text)


StateDir = Annotated[
    Path | None, typer.Option("--state-dir", parser=_named, metavar="FOLDER", help="Folder of the appliance.")
]
Config = Annotated[Path | None, typer.Option("--config", parser=_named, metavar="FILE", help="Settings file (TOML).")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def appliance_paths(state_dir: Path | None, config: Path | None = None) -> Paths:
    """The paths of the appliance in question; the settings are loaded only where a settings file may name it."""
    variable = os.environ.get("TIDE_STATE_DIR") or None
    if state_dir is None and variable is None and config_file(config) is not None:
        return _usable(settings_for(None, config).paths)
    return _usable(Paths.under(state_dir or Path(variable or default_state_dir()), default_cache_dir()))


def _usable(paths: Paths) -> Paths:
    """Raises UsageError where the state folder can be none."""
    try:
        if paths.state.exists() and not paths.state.is_dir():
            raise UsageError(f"{paths.state} is not a folder", remedy="--state-dir takes the folder of an appliance")
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise UsageError(
            f"cannot look at {paths.state}", why=error.strerror, remedy="--state-dir takes the folder of an appliance"
        ) from None
    return paths


def settings_for(state_dir: Path | None, config: Path | None, **flags: Any) -> Settings:
    """The settings in force. Raises UsageError."""
    from tide_cli.settings import load_settings, unknown_variables

    if unknown := unknown_variables():
        complain([f"{', '.join(unknown)} in the environment: no such setting; `tide config` lists them"])
    return load_settings({"state_dir": state_dir, **flags}, config)
