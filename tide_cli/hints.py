"""Next commands in messages, written as `tide …` in backquotes: they are about the appliance of the command at hand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

# Commands that know no --state-dir; `tide demo` does, but its hints are about another way of running it.
_WITHOUT = ("gpus", "version", "targets", "demo", "bench")
_COMMAND = re.compile(rf"(?<=`)tide (?!(?:{'|'.join(_WITHOUT)})\b)[a-z]+(?: [a-z]+)?(?=([^`]*)`)")

_given: dict[str, str] = {}  # one process runs one command


def remember(options: Mapping[str, Any]) -> None:
    """The command at hand: its parameters by name, of which --state-dir and --config say which appliance is meant."""
    _given.clear()
    for name in ("state_dir", "config"):
        if options.get(name) is not None:
            _given["--" + name.replace("_", "-")] = str(options[name])


def spelt(text: str) -> str:
    """The text, each `tide …` in it with the --state-dir and --config of the command at hand: it works as typed.

    A variable that names the appliance is still set when the next command is typed.
    """
    return _COMMAND.sub(lambda match: match[0] + _missing(match[1]), text)


def _missing(rest: str) -> str:
    """rest: what follows the command's name."""
    given = {} if "--help" in rest else _given
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given.items() if name not in rest)
