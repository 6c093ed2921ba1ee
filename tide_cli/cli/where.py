"""Which appliance a command speaks of, found without loading the settings machinery where possible."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.output import complain
from tide_cli.errors import UsageError
from tide_cli.paths import Paths, checked, config_file, default_cache_dir, default_state_dir
from tide_cli.setting_values import parse_path, refusal

if TYPE_CHECKING:
    from tide_cli.settings import Settings


def path_option(name: str, text: str, metavar: str = "FOLDER", show_default: bool | str = False) -> Any:
    """An option that takes a path, refused in the words of settings.py where it can be none."""

    def parse(value: str) -> Path:
        return _path(name, value)

    return typer.Option(name, parser=parse, metavar=metavar, help=text, show_default=show_default)


def _path(where: str, text: str) -> Path:
    try:
        return parse_path(text)
    except ValueError as error:
        raise refusal(where, text, str(error)) from None


def path_argument(text: str, metavar: str = "DIR") -> Any:
    """An argument that takes a path, refused in the same words."""

    def parse(value: str) -> Path:
        return _path(metavar, value)

    return typer.Argument(parser=parse, metavar=metavar, help=text)


def outside(paths: Paths, folder: Path) -> Path:
    """The folder, absolute. Raises UsageError where it lies in the state folder: what is there is the appliance's."""
    folder = folder.absolute()
    try:
        inside = folder.resolve().is_relative_to(paths.state.resolve())
    except RuntimeError:  # what Python calls a loop of links
        raise UsageError(f"cannot use {folder}", why="it is a link that leads back to itself") from None
    if inside:
        raise UsageError(
            f"{folder} lies in the appliance's own folder",
            why="what is put there would be taken for a part of its state, or stand in its way",
            remedy=f"name a folder outside {paths.state}",
        )
    return folder


StateDir = Annotated[Path | None, path_option("--state-dir", "Folder of the appliance.")]
Config = Annotated[Path | None, path_option("--config", "Settings file (TOML).", "FILE")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def appliance_paths(state_dir: Path | None, config: Path | None = None) -> Paths:
    """The paths of the appliance in question; the settings are loaded only where a settings file may name it.

    A cache that a settings file names counts only then: what needs it loads the settings.
    """
    variable = os.environ.get("TIDE_STATE_DIR") or None
    if state_dir is None and variable is None and config_file(config) is not None:
        return checked(settings_for(None, config).paths)
    named = state_dir or (_path("TIDE_STATE_DIR", variable) if variable else default_state_dir())
    cache = os.environ.get("TIDE_CACHE_DIR")
    return checked(Paths.under(named, _path("TIDE_CACHE_DIR", cache) if cache else default_cache_dir()))


def settings_for(state_dir: Path | None, config: Path | None, **flags: Any) -> Settings:
    """The settings in force. Raises UsageError."""
    return settings_with_origins(state_dir, config, **flags)[0]


def settings_with_origins(state_dir: Path | None, config: Path | None, **flags: Any) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and where each comes from. Raises UsageError."""
    from tide_cli.settings import load_with_origins, unknown_variables

    if unknown := unknown_variables():
        complain([f"{', '.join(unknown)} in the environment: no such setting; `tide config` lists them"])
    return load_with_origins({"state_dir": state_dir, **flags}, config)
