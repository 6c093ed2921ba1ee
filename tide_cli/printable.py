"""Text of others on one line of a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line; whatever a terminal might obey is spelt out."""
    line = text.replace("\n", "; ")
    return "".join(letter if letter.isprintable() or letter == "\t" else repr(letter)[1:-1] for letter in line)
