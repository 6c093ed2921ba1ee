"""What a setting may be, and how a value that it cannot be is refused: the same wherever it comes from."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from tide_cli.errors import UsageError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate(("", "k", "m", "g", "t")) if unit}

_LONGEST_TEXT, _LONGEST_NAME = 4095, 255  # bytes; of a path and of a file's name, Linux takes no longer ones
MOST_RUNNING = 4096  # requests that are decoded together
_LARGEST_SIZE = 2**50  # bytes; a larger one is a slip
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.ASCII | re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """'512MiB', '2G', '1048576' -> bytes. Raises ValueError on anything else."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([kmgt]?i?)b?", str(text).strip().lower(), re.ASCII)
    if isinstance(text, bool) or not match or match[2] == "i":
        raise ValueError(f"{shown(text)} is not a size; write for example 512MiB or 2GiB")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size > _LARGEST_SIZE:
        raise ValueError(f"{shown(text)} is more than any machine has")
    return size


def parse_path(text: str) -> Path:
    """The path of a file or folder, `~` replaced. Raises ValueError where it can be none."""
    path = Path(one_line(text))
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError(f"there is no home folder of {path.parts[0][1:] or 'this user'}") from None
    try:
        path.absolute()
    except OSError:
        raise ValueError("the folder that it starts from is gone") from None
    return path


def one_line(text: str) -> str:
    """The text itself. Raises ValueError where it is empty, of several lines, or too long for a path."""
    if not text.strip():
        raise ValueError("it is empty")
    if not text.isprintable():
        raise ValueError("it has a character that cannot be printed")
    names = (len(name.encode(errors="surrogateescape")) for name in text.split("/"))
    if len(text.encode(errors="surrogateescape")) > _LONGEST_TEXT or max(names) > _LONGEST_NAME:
        raise ValueError(f"it is too long: a name has at most {_LONGEST_NAME} bytes, a path {_LONGEST_TEXT}")
    return text


def host_name(text: str) -> str:
    """The text itself. Raises ValueError where it is neither an address nor the name of a host."""
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        # what ends in a number would be an address
        if not _HOST.fullmatch(text) or text.rstrip(".").rpartition(".")[2].isdecimal():
            raise ValueError("it is neither an address nor the name of a host") from None
    return text


def plain(value: Any, field: FieldInfo) -> Any:
    """A text from a flag or the environment as the number it stands for; what a file has is held to the same.

    Raises ValueError, with what the setting takes, for what is of another kind.
    """
    kind = _kind(field)
    if value is None or kind is None:
        return value
    if kind is bool:
        good = isinstance(value, bool | str) or value in (0, 1)
    elif kind is str:
        good = isinstance(value, str)
        value = one_line(value) if good else value
    elif kind is Path:
        good = isinstance(value, str | Path)
        value = parse_path(str(value)).absolute() if good else value
    elif isinstance(value, str):
        text = value.strip()
        good = (_WHOLE if kind is int else _NUMBER).fullmatch(text) is not None
        value = kind(text) if good else value
    else:
        good = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not good or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"it takes {takes(field)}")
    return value


def takes(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    kind = _kind(field)
    if kind is None:
        return f"one of {', '.join(_choices(field.annotation))}"
    if kind not in (int, float):
        return {bool: "true or false", str: "a text", Path: "the path of a folder"}[kind]
    least, most = _bounds(field)
    kinds = "a whole number" if kind is int else "a number"
    if hasattr(least, "ge") and hasattr(most, "le"):
        return f"{kinds} from {least.ge} to {most.le}"
    words = [f"from {least.ge} on" if hasattr(least, "ge") else f"above {least.gt}"] if least else []
    words += [f"at most {most.le}" if hasattr(most, "le") else f"below {most.lt}"] if most else []
    return f"{kinds} {', '.join(words)}".strip()


def _bounds(field: FieldInfo) -> tuple[Any, Any]:
    least = [bound for bound in field.metadata if hasattr(bound, "ge") or hasattr(bound, "gt")]
    most = [bound for bound in field.metadata if hasattr(bound, "le") or hasattr(bound, "lt")]
    return (least or [None])[0], (most or [None])[0]


def _kind(field: FieldInfo) -> Any:
    """bool, int, float, str or Path; None for a choice and for lists."""
    inner = [each for each in _members(field.annotation) if each is not type(None)]
    return inner[0] if len(inner) == 1 and inner[0] in (bool, int, float, str, Path) else None


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _choices(annotation: Any) -> list[str]:
    choices: list[str] = []
    for member in _members(annotation):
        if get_origin(member) is Literal:
            choices += map(str, get_args(member))
        elif get_origin(member) is Annotated:
            least, most = _bounds(get_args(member)[1])
            choices.append(f"a number from {least.ge} to {most.le}")
    return choices


def shown(value: object) -> str:
    """A refused value as a message shows it: a text in quotes; one line, and not too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping | list | tuple):
        return "a table" if isinstance(value, Mapping) else "a list"
    text = str(value)
    text = text if len(text) <= 60 else f"{text[:59]}…"
    return repr(text) if isinstance(value, str) else text


def refusal(where: str, value: object, why: str, remedy: str | None = None) -> UsageError:
    """where: the flag, the variable, or the setting and its file."""
    return UsageError(f"{where}: {shown(value)} is not accepted", why=why, remedy=remedy)
