"""JSON that something else may have written, read as an object or refused in words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tide_cli.regular_files import check_regular

_T = TypeVar("_T")
_DIGITS = 100  # of a whole number; a longer one fits into no figure here


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file. Raises OSError, where it is no regular file too, and ValueError as `json_object` does."""
    check_regular(path)
    return json_object(path.read_text())


def json_object(text: str, pairs: Any = dict) -> dict[str, Any]:
    """The object that `text` is; its numbers are finite. Raises ValueError, for `reason` to put into words.

    pairs: what makes an object of a list of names and values; it may raise ValueError.
    """
    try:
        found = json.loads(
            text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole, object_pairs_hook=pairs
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def checked(kind: type[_T], values: Any) -> _T:
    """`values` as the dataclass `kind`, each of its type. Raises ValueError naming what is missing or wrong."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        what = "missing" if first["type"] == "missing" else "not what it should be"
        raise ValueError(f"{where} is {what}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:_DIGITS]} is too large a number")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def finite(value: Any) -> Any:
    """The same without NaN and infinities, which JSON cannot say: None in their place."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
