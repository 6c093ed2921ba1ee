"""Printing: JSON and tables on stdout, messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from tide_cli.hints import spelt
from tide_cli.json_files import finite
from tide_cli.printable import printable

_WORDS = {"al": "acceptance length", "ttft": "time to first token", "itl": "time between tokens", "e2e": "whole answer"}


def complain(lines: Iterable[str]) -> None:
    """Messages for people, on stderr: each of the lines is one, whatever it quotes; hints are spelt out."""
    first, *rest = (printable(spelt(line.strip())) for line in lines)
    try:
        print("\n".join([f"tide: {first}", *(f"      {line}" for line in rest)]), file=sys.stderr, flush=True)
    except OSError:  # nobody can be told that they cannot be told
        forget(sys.stderr)


def forget(stream: TextIO) -> None:
    """Leave nothing in a stream that Python would try to write once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(value: Any) -> None:
    """Every reader takes it: null for what is no finite number, an escape for half a character."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False)
    print(text.encode(errors="backslashreplace").decode())


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their contents; plain text, so that it can be cut and searched. Hints are spelt out."""
    print("\n".join(table_lines(header, rows)))


def words_of(field: str) -> str:
    """A figure's name for people: 'ttft_p50_ms' -> 'time to first token p50 ms', 'output_tok_s' -> 'output tok/s'."""
    words = [_WORDS.get(word, word) for word in field.split("_")]
    return "/".join([" ".join(words[:-1]), "s"]) if len(words) > 1 and words[-1] == "s" else " ".join(words)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of `print_table`."""
    cells = [[printable(str(name)) for name in header], *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _cell(value: object) -> str:
    return "-" if value is None else printable(spelt(str(value)))
