"""Where everything lies: each folder and file that TIDE uses, in one place."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tide_cli.errors import UsageError, reason

# sockaddr_un.sun_path holds 108 bytes on Linux, the closing NUL included.
_MAX_SOCKET_PATH = 107
# SGLang's processes talk over sockets in the temporary folder, with names of up to about 30 bytes.
_MAX_SCRATCH_PATH = _MAX_SOCKET_PATH - 32


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/tide`, else `~/.local/state/tide`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tide"


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/tide`, else `~/.cache/tide`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tide"


def config_file(config: Path | None) -> Path | None:
    """The settings file in force: the given one, $TIDE_CONFIG, or the default one where it exists."""
    named = config or (Path(os.path.expanduser(path)) if (path := os.environ.get("TIDE_CONFIG")) else None)
    if named:
        return named
    default = default_config_file()
    return default if default.is_file() else None


def default_config_file() -> Path:
    """`$XDG_CONFIG_HOME/tide/tide.toml`, else `~/.config/tide/tide.toml`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tide" / "tide.toml"


@dataclass(frozen=True)
class Paths:
    """Every path of one appliance. Nothing is created here."""

    state: Path  # one appliance's own folder; the lock, sockets and data below it
    cache: Path  # shared between appliances: converted targets, measured round times
    embedded_target: Path  # the checkpoint converted from the embedded target's GGUF
    profiles: Path  # measured round times of engines, see tide_cli/engine/plugin/profile.py
    kernels: Path  # what SGLang compiles, unless SGLANG_CACHE_DIR names another folder
    spool: Path  # ring.bin, index.db, reservoir/
    drafts: Path  # v0000/, v0001/, …
    training: Path  # the trainer's own state between cycles
    logs: Path  # engine.log, trainer.log, supervisor.log
    run: Path  # configuration handed to the children, leftovers' record
    scratch: Path  # temporary files of the children; emptied at every start and end
    database: Path  # events and the served version (written by the supervisor alone)
    history: Path  # figures of the last 90 days (written by the supervisor alone)
    lock: Path  # held by the running supervisor
    socket: Path  # the control API

    @classmethod
    def under(cls, state: Path, cache: Path) -> Paths:
        """The paths of the appliance whose state folder is `state`."""
        state = state.expanduser().absolute()
        cache = cache.expanduser().absolute()
        return cls(
            state=state,
            cache=cache,
            embedded_target=cache / "targets" / "smollm2-135m",
            profiles=cache / "profiles",
            kernels=cache / "sglang",
            spool=state / "spool",
            drafts=state / "drafts",
            training=state / "training",
            logs=state / "logs",
            run=state / "run",
            scratch=_short(state / "tmp", _MAX_SCRATCH_PATH, state),
            database=state / "tide.db",
            history=state / "history.db",
            lock=state / "lock",
            socket=_short(state / "control.sock", _MAX_SOCKET_PATH, state),
        )

    def as_dict(self) -> dict[str, str]:
        """Name to absolute path, in the order of the fields."""
        return {name: str(path) for name, path in asdict(self).items()}


def checked(paths: Paths) -> Paths:
    """The same. Raises UsageError where the state folder can be none, is not this user's, or leaves no room for a
    socket's name."""
    state = paths.state
    if (length := len(os.fsencode(paths.socket))) > _MAX_SOCKET_PATH:
        raise UsageError(
            "the state folder and the temporary folder both have too long a path",
            why=f"a socket's path has at most {_MAX_SOCKET_PATH} bytes, and {paths.socket} has {length}",
            remedy="choose a shorter --state-dir, or set TMPDIR to a folder with a shorter path",
        )
    try:
        if state.exists() and not state.is_dir():
            raise UsageError(f"{state} is not a folder", remedy="--state-dir takes the folder of an appliance")
        if state.is_dir() and not os.access(state, os.R_OK | os.X_OK):
            raise UsageError(
                f"cannot look into {state}",
                why="it belongs to another user, or its mode forbids it",
                remedy="--state-dir takes a folder of your own",
            )
    except OSError as error:
        raise UsageError(
            f"cannot look at {state}", why=reason(error), remedy="--state-dir takes the folder of an appliance"
        ) from None
    return paths


def _short(inside: Path, limit: int, state: Path) -> Path:
    """`inside` the state folder where its path is short enough for a socket, else a name in the temporary folder."""
    if len(os.fsencode(inside)) <= limit:
        return inside
    digest = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tide-{os.getuid()}-{digest}-{inside.name}"
