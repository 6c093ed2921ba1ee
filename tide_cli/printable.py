"""Text for a terminal: what others have written, and numbers of things."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line; whatever a terminal might obey is spelt out."""
    return _spelt_out(text.replace("\n", "; "))


def printable_lines(text: str) -> str:
    """The text, its lines kept; whatever else a terminal might obey is spelt out."""
    return "\n".join(map(_spelt_out, text.replace("\r\n", "\n").replace("\r", "\n").split("\n")))


def _spelt_out(line: str) -> str:
    return "".join(letter if letter.isprintable() or letter == "\t" else repr(letter)[1:-1] for letter in line)


def many(number: int, thing: str) -> str:
    """(1, 'sample') -> '1 sample', (1200, 'sample') -> '1,200 samples', (2, 'process') -> '2 processes'."""
    return f"{number:,} {thing}" + ("" if number == 1 else "es" if thing.endswith("s") else "s")


def size_words(size: float) -> str:
    """Bytes: 1536 -> '1.5 KiB'."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while round(size, 1) >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
