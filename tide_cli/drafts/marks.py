"""What was said about versions after their publication: pinned ones, and those that turned out bad.

One small file beside the versions, replaced as a whole, because the versions themselves never change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tide_cli.drafts.files import sync_folder, write_file
from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object

MARKS_FILE = "marks.json"


@dataclass(frozen=True)
class Marks:
    """pinned: never removed by `tide drafts gc`; bad: version to the reason why it was taken out of service."""

    pinned: frozenset[int] = frozenset()
    bad: Mapping[int, str] = field(default_factory=dict)


def read_marks(root: Path) -> Marks:
    """The marks in the store `root`; none before there are any. TideError where the file cannot be read."""
    path = root / MARKS_FILE
    try:
        content = read_object(path)
        return Marks(
            frozenset(int(version) for version in content["pinned"]),
            {int(version): str(reason) for version, reason in content["bad"].items()},
        )
    except FileNotFoundError:
        return Marks()
    except NotADirectoryError as error:
        raise TideError(
            f"cannot look into {root}", why=reason(error), remedy="mend it, or use another --state-dir"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = reason(error)
        raise TideError(f"cannot read {path}", why=why, remedy="remove it, and pin again what is to stay") from None


def write_marks(root: Path, marks: Marks) -> None:
    """Replace the file in one step, flushed to the disk. The caller holds the store's lock."""
    content = {"pinned": sorted(marks.pinned), "bad": {str(version): marks.bad[version] for version in marks.bad}}
    unfinished = root / f".{MARKS_FILE}"  # one name, so that what a killed writer left does not stay
    unfinished.unlink(missing_ok=True)
    write_file(unfinished, (json.dumps(content, indent=2) + "\n").encode())
    os.replace(unfinished, root / MARKS_FILE)
    sync_folder(root)
