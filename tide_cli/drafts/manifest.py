"""What a published draft says about itself, and the names of versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError, UsageError, reason
from tide_cli.json_files import read_object

MANIFEST_FILE = "manifest.json"
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"

_NAME = re.compile(r"v(\d{4,})")


@dataclass(frozen=True)
class Manifest:
    """manifest.json of a version.

    files: name -> sha256 in hex, for every other file of the folder. parent: the version training started from.
    vocab_map_hash: see tensors.vocab_map_hash. samples, tokens: trained on since the parent, each pass counted. gate:
    the gate's figures, None for a draft that passed none (the first one). created: unix seconds.
    """

    parent: int | None
    target: str
    target_revision: str
    vocab_map_hash: str
    samples: int
    tokens: int
    gate: dict[str, Any] | None
    created: float
    files: dict[str, str]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in `folder`. TideError, naming the file, when it is missing or not a manifest."""
        path = folder / MANIFEST_FILE
        try:
            content = read_object(path)
            if not isinstance(content.get("files"), dict):
                raise ValueError("it names no files")
            missing = [field.name for field in fields(cls) if field.name not in content]
            if missing:
                raise ValueError(f"{missing[0]} is missing")
            wrong = [name for name, can_be in _CAN_BE.items() if not can_be(content[name])]
            if wrong:
                raise ValueError(f"{wrong[0]} is {repr(content[wrong[0]])[:50]}")
            return cls(**{field.name: content[field.name] for field in fields(cls)})
        except (OSError, ValueError) as error:  # encoding errors are ValueErrors too
            raise damaged(path, reason(error)) from None


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return type(value) in (int, float) and -_LATEST < value < _LATEST  # NaN is in no range


def _gate(value: Any) -> bool:
    figures = [value.get(name) for name in ("gain", "candidate_al")] if isinstance(value, dict) else [value]
    return all(figure is None or (isinstance(value, dict) and _number(figure)) for figure in figures)


_LATEST = 1e11  # unix seconds; a later time is no time
_CAN_BE: dict[str, Callable[[Any], bool]] = {
    "parent": lambda value: value is None or _count(value),
    "target": lambda value: isinstance(value, str),
    "target_revision": lambda value: isinstance(value, str),
    "vocab_map_hash": lambda value: isinstance(value, str),
    "samples": _count,
    "tokens": _count,
    "gate": _gate,
    "created": lambda value: _number(value) and value >= 0,
    "files": lambda value: all(isinstance(digest, str) for digest in value.values()),
}


def version_name(version: int) -> str:
    """7 -> 'v0007'."""
    return f"v{version:04d}"


def parse_version(text: str) -> int:
    """'v0007' or '7' -> 7. UsageError on anything else."""
    match = re.fullmatch(r"v?(\d{1,9})", text.strip(), re.ASCII)
    if not match:
        raise UsageError(f"{text!r} is not a draft version", remedy="write for example v0007 or 7")
    return int(match[1])


def version_of_folder(name: str) -> int | None:
    """The version a folder of this name holds: 'v0007' -> 7; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and version_name(int(match[1])) == name else None


def damaged(path: Path, why: str | None) -> TideError:
    """A draft's file that is missing or not what it was: of a version, or of a folder from elsewhere."""
    remedy = "copy the draft again, or use another one"
    if version_of_folder(path.parent.name) is not None:
        remedy = "serve another version, or train a new one"
    return TideError(f"the draft file {path} is damaged", why=why, remedy=remedy)
