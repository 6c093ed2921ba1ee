"""The systemd unit of an appliance. Pure: a unit is a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MARGIN = 30.0  # seconds beyond the children's own bound: killing, and the end of the supervisor


def render_unit(
    command: Sequence[str], environment: Mapping[str, str], *, target: str, stop_timeout: float, user: str | None
) -> str:
    """command: with an absolute path; user: who runs it, None for a unit of the user's own manager.

    `exec` and not `notify`: a first start may fetch a model for an hour, and whether the engine answers is a question
    for `tide ps`. TERM goes to the supervisor alone (`mixed`), which ends its children in order. A child killed for
    want of memory is the supervisor's to start again (OOMPolicy). Exit code 2 is wrong usage: no restart mends it.
    """
    wanted_by = "multi-user.target" if user else "default.target"
    after = ["Wants=network-online.target", "After=network-online.target"] if user else []
    lines = [
        "[Unit]",
        f"Description=TIDE serves {_literal(target)}",
        *after,
        "StartLimitIntervalSec=3600",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        *([f"User={user}"] if user else []),
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()),
        f"ExecStart={' '.join(_argument(word) for word in command)}",
        "KillMode=mixed",
        f"TimeoutStopSec={stop_timeout + _MARGIN:.0f}",
        "Restart=on-failure",
        "RestartSec=10",
        "RestartPreventExitStatus=2",
        "OOMPolicy=continue",
        "UMask=0077",
        "",
        "[Install]",
        f"WantedBy={wanted_by}",
    ]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Nothing in it stands for something else: systemd replaces %h and the like."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    escaped = _literal(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _argument(word: str) -> str:
    """A word of ExecStart, where $NAME is replaced as well."""
    quoted = _quoted(word).replace("$", "$$")
    plain = word.isascii() and word.replace("-", "").replace("_", "").replace("/", "").replace(".", "").isalnum()
    return word if plain else quoted
