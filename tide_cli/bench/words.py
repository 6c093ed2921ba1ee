"""Values as a table or a page shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def figure(value: float | None, form: str) -> str:
    """In the format `form`; '-' for None."""
    return "-" if value is None else format(value, form)


def condition(value: object) -> object:
    """Yes or no, names with their values, the entries of a list, 'none' for nothing; any other value as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else value
