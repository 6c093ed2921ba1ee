"""The notebook of a long measurement: one JSON object a line, so that an interrupted one can be taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, UsageError


class Records:
    """`records.jsonl` in a folder. The first line says what is measured; a folder belongs to one measurement."""

    def __init__(self, folder: Path, what: Mapping[str, Any]) -> None:
        """Make it, or read what an interrupted measurement of the same kind has left. UsageError for another one's."""
        self._file = folder / "records.jsonl"
        self.entries: list[dict[str, Any]] = []
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lines = self._file.read_text().split("\n") if self._file.exists() else []
        except OSError as error:
            raise UsageError(f"cannot use the folder {folder}", why=error.strerror) from None
        try:
            read = [json.loads(line) for line in lines[:-1]]  # what stands behind the last newline was cut short
        except ValueError:
            raise UsageError(f"{self._file} is damaged", remedy="name another folder") from None
        if not read:
            self._write(json.dumps({"kind": "what", **what}) + "\n", "w")
            return
        head, *self.entries = read
        if head != json.loads(json.dumps({"kind": "what", **what})):
            changed = sorted(name for name in {*head, *what} - {"kind"} if head.get(name) != _plain(what.get(name)))
            raise UsageError(
                f"{folder} holds another measurement",
                why=f"it differs in {', '.join(changed)}",
                remedy="give the same options to go on with it, or name another folder",
            )
        if lines[-1]:
            self._write("".join(line + "\n" for line in lines[:-1]), "w")

    def add(self, kind: str, **values: Any) -> None:
        """One more entry, on the disk when this returns. TideError where the disk does not take it."""
        entry = {"kind": kind, **values}
        self._write(json.dumps(entry) + "\n", "a")
        self.entries.append(entry)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The entries of one kind in order, without the kind."""
        return [
            {name: value for name, value in entry.items() if name != "kind"}
            for entry in self.entries
            if entry["kind"] == kind
        ]

    def _write(self, text: str, mode: str) -> None:
        try:
            with self._file.open(mode) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise TideError(f"cannot write {self._file}", why=error.strerror) from None


def _plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))
