"""Results as they come: a JSON-lines file that an interrupted measurement goes on with.

The first line says what is measured and under what; each further one is a finished part. A part is written whole, so
that what an interruption cuts off is at most the last line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, UsageError, reason
from tide_cli.file_locks import is_locked, take_lock
from tide_cli.json_files import finite, json_object
from tide_cli.regular_files import check_regular


class Results:
    """A file of results; `parts` are those that it holds. Within `with` no other process goes on with it."""

    def __init__(self, path: Path, kind: str, head: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self.path, self.kind, self.head, self.parts = path, kind, head, parts
        self._size = path.stat().st_size

    def __enter__(self) -> Results:
        """UsageError where another process goes on with it, or has since it was read."""
        self._file = self.path.open("rb")
        try:
            take_lock(self._file.fileno())
            if self.path.stat().st_size != self._size:
                raise BlockingIOError
        except BlockingIOError:
            self._file.close()
            raise _busy(self.path) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @classmethod
    def begin(cls, path: Path, kind: str, head: dict[str, Any]) -> Results:
        """A new file. kind: which measurement. UsageError where there is one already or none can be made."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("x")
        except OSError as error:
            if path.is_file():
                remedy = f"go on with it with --resume {path}, or name another file"
                raise UsageError(f"{path} exists already", remedy=remedy) from None
            raise UsageError(f"cannot write {path}", why=reason(error)) from None
        try:
            with file:
                file.write(json.dumps({"bench": kind, **head}) + "\n")
        except OSError as error:
            path.unlink()
            raise UsageError(f"cannot write {path}", why=reason(error)) from None
        return cls(path, kind, head, [])

    @classmethod
    def resume(cls, path: Path, kind: str) -> Results:
        """One that was begun before. UsageError where it is not that, or where another process has it open."""
        try:
            check_regular(path)
            if is_locked(path):
                raise _busy(path)
            content = path.read_bytes()
            # what was being written when it ended has no line end
            whole = content[: content.rfind(b"\n") + 1]
            lines = whole.decode().split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}", why=reason(error)) from None
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                found.append(json_object(line))
            except ValueError as error:
                raise _foreign(path, kind, f"line {number}: {reason(error)}") from None
        if not found or found[0].pop("bench", None) != kind:
            raise _foreign(path, kind, "its first line says something else")
        head, *parts = found
        if len(whole) < len(content):
            os.truncate(path, len(whole))
        return cls(path, kind, head, parts)

    def add(self, part: dict[str, Any]) -> None:
        """One more finished part. TideError where it cannot be written."""
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(finite(part)) + "\n")
        except OSError as error:
            raise TideError(f"cannot write {self.path}", why=reason(error)) from None
        self.parts.append(part)


def _busy(path: Path) -> UsageError:
    return UsageError(f"another process measures into {path}", remedy="wait for its end")


def _foreign(path: Path, kind: str, why: str) -> UsageError:
    return UsageError(f"{path} is no file of `tide bench {kind}`", why=why, remedy="give it one that was kept by it")
