"""Errors that are meant for people: what happened, why, and the next command."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `tide` command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3


class TideError(Exception):
    """A failure that the user can understand and act on.

    what: one sentence, what went wrong.
    why: the reason, where it is not already in `what`.
    remedy: the next command or change, in words.
    excerpt: lines of a log to show below, where they may help.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(
        self, what: str, *, why: str | None = None, remedy: str | None = None, excerpt: Sequence[str] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy
        self.excerpt = list(excerpt)

    def lines(self) -> list[str]:
        """For stderr: one or two lines, what and why, then what to do next; below them the excerpt."""
        first = f"{self.what}: {self.why}" if self.why else self.what
        return [first, *([self.remedy] if self.remedy else []), *(f"| {line}" for line in self.excerpt)]


class UsageError(TideError):
    """The command line, an environment variable or a settings file is wrong."""

    exit_code = ExitCode.USAGE


class NotRunningError(TideError):
    """No appliance answers on this state directory."""

    exit_code = ExitCode.NOT_RUNNING


# What the system's words for these leave open.
_WORDS = {
    errno.EEXIST: "something else is in its place",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "it is a link that leads back to itself",
    errno.ENOTDIR: "a part of its path is no folder",
}


def reason(error: Exception) -> str:
    """What an error says, in words for people: nothing of the language the program is written in."""
    if isinstance(error, OSError) and error.strerror:
        return _WORDS.get(error.errno or 0, error.strerror)
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON (line {error.lineno}, column {error.colno})"
    if isinstance(error, UnicodeError):
        return "it is not a text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing" if error.args else "a part is missing"
    if isinstance(error, TypeError | AttributeError | IndexError | EOFError):
        return "its contents are not what they should be"
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OverflowError):
        return "a number in it is too large"
    if isinstance(error, SyntaxError):
        return f"it is no Python (line {error.lineno})"
    text = " ".join(str(error).split())[:300]
    if text.startswith("Exceeds the limit"):
        return "a number in it has too many digits"
    if text.startswith(("invalid literal", "could not convert", "embedded null")):
        return "its contents are not what they should be"
    return text or "no reason was given"
