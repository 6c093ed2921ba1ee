"""Errors that are meant for people: what happened, why, and the next command."""

from __future__ import annotations

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
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, *, why: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def lines(self) -> list[str]:
        """One or two lines for stderr: what and why, then what to do next."""
        first = f"{self.what}: {self.why}" if self.why else self.what
        return [first, self.remedy] if self.remedy else [first]


class UsageError(TideError):
    """The command line, an environment variable or a settings file is wrong."""

    exit_code = ExitCode.USAGE


class NotRunningError(TideError):
    """No appliance answers on this state directory."""

    exit_code = ExitCode.NOT_RUNNING
