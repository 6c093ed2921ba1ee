"""What takes the place of the panels for a while: the keys explained, and the ends of the logs."""

from __future__ import annotations

import re
from pathlib import Path

from rich.text import Text

from tide_cli.dashboard.view import cleaned, fitted
from tide_cli.supervisor.logs import read_tail

LOGS = ("engine", "trainer", "supervisor")
# SGLang's --log-requests writes prompts and answers into its log
_REQUEST = re.compile(r"\b(Receive|Finish)\b.*\bobj=|\brequest\.(received|finished)|(Req|Request)(Input|Output)?\(")
_LINE = re.compile(r"^(\[?\d{4}-\d\d-\d\d|INFO|WARNING|ERROR|tide: |Traceback|  File )")
_ERROR = re.compile(r"^([\w.]*(Error|Exception)\b)(: .)?")  # what it complains of may be an input

_FIGURES = (
    ("tokens/s", "generated (out) and read (in), over the last five seconds"),
    ("first, next", "waiting time for the first and for each further token; half of them / 95 % are below"),
    ("accepted", "acceptance length: tokens per step of the target; 1 is plain decoding"),
    ("speed-up", "against plain decoding at this load, by the measured round times; below 1 it costs"),
    ("positions", "part of the proposals accepted at each position, where those before were"),
    ("steps", "draft steps in force, and why; ▲ marks a swap"),
    ("-", "not known"),
)


def help_page(keys: list[tuple[str, str]], width: int, height: int, ascii: bool) -> list[Text]:
    """keys: (key, what it does), in full."""
    lines = [Text.assemble((f"{key:<12}", "bold cyan"), what) for key, what in keys]
    lines += [Text(), *(Text.assemble((f"{name:<12}", "dim"), what) for name, what in _FIGURES)]
    return fitted(lines, width, height, ascii)


def log_page(folder: Path, name: str, back: int, width: int, height: int, ascii: bool) -> tuple[list[Text], int]:
    """The end of a log, `back` lines earlier, or as far back as can be: the page and how far that is.

    Lines that tell of a request are left out, and so is all that does not look like a line of a log: it may be the rest
    of one that held a prompt. Of an error only the name is shown.
    """
    lines, hidden = log_lines(read_tail(folder / f"{name}.log"))
    rows = max(1, height - 1)
    back = min(back, max(0, len(lines) - rows))
    left_out = f"   {hidden} lines not shown: they may hold texts" if hidden else ""
    title = Text.assemble((f"{name}.log", "bold"), left_out)
    end = len(lines) - back
    shown = [Text(line) for line in lines[max(0, end - rows) : end]]
    return fitted([title, *(shown or [Text("empty", "dim")])], width, height, ascii), back


def log_lines(text: str) -> tuple[list[str], int]:
    """The lines that may be shown, and how many may not."""
    shown: list[str] = []
    hidden = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        if error := _ERROR.match(line):
            shown.append(f"{error[1]}: …" if error[3] else error[1])
        elif _LINE.match(line) and not _REQUEST.search(line):
            shown.append(cleaned(line))
        else:
            hidden += 1
    return shown, hidden
