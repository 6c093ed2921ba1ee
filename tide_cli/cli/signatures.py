"""Commands that share options: each option is written once, in the parameters of one function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

_Command = TypeVar("_Command", bound=Callable[..., Any])


def with_options_of(source: Callable[..., Any], leave_out: Collection[str] = ()) -> Callable[[_Command], _Command]:
    """A decorator: the command's **keywords become the parameters of `source`, which typer then sees as its own."""

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        shared = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(source, eval_str=True).parameters.values()
            if parameter.name not in leave_out
        ]
        kept = [parameter for parameter in own if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__signature__ = inspect.Signature([*kept, *shared])  # type: ignore[attr-defined]
        return command

    return decorate
