"""`tide systemd`: a unit that runs `tide up` with the same options."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tide_cli.cli.app import app
from tide_cli.cli.output import complain
from tide_cli.cli.setting_options import speculation_mode
from tide_cli.cli.signatures import with_options_of
from tide_cli.cli.up import up
from tide_cli.cli.where import settings_for
from tide_cli.errors import TideError
from tide_cli.paths import config_file

_NOT_IN_A_UNIT = {"detach", "wait"}  # systemd runs it in the foreground
_ALSO_KEPT = ("CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE", "SGLANG_CACHE_DIR")  # beside TIDE_*; no secrets


@app.command()
@with_options_of(up, leave_out=_NOT_IN_A_UNIT)
def systemd(
    user: Annotated[bool, typer.Option("--user", help="For your own manager: systemctl --user.")] = False,
    **options: Any,
) -> None:
    """Print a systemd unit: `tide up` with these options."""
    from tide_cli.supervisor.appliance import check_machine
    from tide_cli.supervisor.unit import render_unit

    chosen = {name: value for name, value in options.items() if value is not None}
    if mode := speculation_mode(chosen.get("speculation"), chosen.pop("no_speculation", None)):
        chosen["speculation"] = mode
    words = chosen.pop("sglang_arguments", None) or []
    config = config_file(chosen.pop("config", None))
    settings = settings_for(chosen.pop("state_dir", None), config, **chosen, sglang_arguments=words or None)
    check_machine(settings)
    # a unit runs in another folder, and a system's with another environment
    chosen |= {"state_dir": settings.state_dir, "cache_dir": settings.cache_dir}
    if config is not None:
        chosen["config"] = config.expanduser().absolute()
    for name in ("target", "draft"):
        if name in chosen and (folder := Path(chosen[name]).expanduser()).is_dir():
            chosen[name] = folder.absolute()
    command = [str(_program()), "up", *_as_options(chosen), *(["--", *words] if words else [])]
    owner = None if user else _own_name()
    print(
        render_unit(command, _environment(), target=settings.target, stop_timeout=settings.stop_timeout, user=owner),
        end="",
    )
    place, control = ("~/.config/systemd/user", "systemctl --user") if user else ("/etc/systemd/system", "systemctl")
    complain([f"write it to {place}/tide.service, then `{control} enable --now tide`"])


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        why = f"the user of number {os.getuid()} has no name here"
        raise TideError(
            "a unit of the system needs a user", why=why, remedy="pass --user for a unit of your own"
        ) from None


def _program() -> Path:
    """The `tide` that is running. Raises TideError where it was not started by that name."""
    beside = Path(sys.executable).with_name("tide")
    program = Path(sys.argv[0]) if Path(sys.argv[0]).name == "tide" else beside
    found = shutil.which(program)
    if found is None:
        raise TideError(
            f"there is no {program}", why="a unit needs a program to start", remedy="./install.sh installs it"
        )
    return Path(found).absolute()


def _as_options(chosen: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in chosen.items():
        flag = name.replace("_", "-")
        words += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return words


def _environment() -> dict[str, str]:
    """What the present shell has set and a start by systemd would lack; the folders are named by options."""
    from tide_cli.settings import Settings

    known = {f"TIDE_{name.upper()}" for name in Settings.model_fields} - {"TIDE_STATE_DIR", "TIDE_CACHE_DIR"}
    return {
        name: value for name, value in sorted(os.environ.items()) if value and (name in known or name in _ALSO_KEPT)
    }
