"""How a child process of TIDE speaks to its supervisor, which reads the end of its log: lines of two beginnings."""

from __future__ import annotations

import sys

from tide_cli.errors import TideError

OURS = "tide: "  # what is wrong and what to do, for people
SAYS = "say "  # how far it is


def say(line: str) -> None:
    """Of a child that fetches or prepares files."""
    print(f"{SAYS}{line}", flush=True)


def complain(error: TideError) -> None:
    """The last words of a child that ends with `error`."""
    print("\n".join(f"{OURS}{line}" for line in error.lines()), file=sys.stderr)
