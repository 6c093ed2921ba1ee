"""The figures of `tide bench matrix` as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from tide_cli.bench.matrix import Load
from tide_cli.printable import many

# (words, name, digits, unit's divisor)
ROWS = (
    ("output tok/s", "output_tok_s", 1, 1),
    ("requests/s", "requests_s", 2, 1),
    ("time to first token, ms, p50", "ttft_p50_ms", 0, 1),
    ("  p95", "ttft_p95_ms", 0, 1),
    ("inter-token latency, ms, p50", "itl_p50_ms", 1, 1),
    ("  p95", "itl_p95_ms", 1, 1),
    ("  p99", "itl_p99_ms", 1, 1),
    ("end to end, ms, p50", "e2e_p50_ms", 0, 1),
    ("  p95", "e2e_p95_ms", 0, 1),
    ("acceptance length", "acceptance_length", 2, 1),
    ("acceptance rate of drafts", "acceptance_rate", 2, 1),
    ("KV cache in use, %, peak", "kv_use_peak", 1, 0.01),
    ("memory, MiB", "memory", 0, 2**20),
    ("GPU memory, MiB", "gpu_memory", 0, 2**20),
    ("errors, time-outs among them", "errors", 0, 1),
)
_POSITIONS = "acceptance_by_position"
_MOST_POSITIONS = 5  # of a cell that is no wider than the others


def as_tables(matrix: Mapping[str, Any]) -> list[Table]:
    """One table for each load: a column for each mode, its ratio to the first mode in brackets."""
    loads = dict.fromkeys(load_of(cell) for cell in matrix["cells"])
    return [_table(load, matrix) for load in loads]


def load_of(cell: Mapping[str, Any]) -> Load:
    return Load(cell["concurrency"], cell["rate"])


def _table(load: Load, matrix: Mapping[str, Any]) -> Table:
    cells = [cell for cell in matrix["cells"] if load_of(cell) == load]
    rounds = cells[0]["rounds"]
    table = Table(
        title=f"{load.words()}, {cells[0]['requests'] // max(rounds, 1)} requests in each of {many(rounds, 'round')}",
        caption=brackets(matrix),
        box=box.SIMPLE,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for cell in cells:
        table.add_column(cell["mode"], justify="right", no_wrap=True)
    for row in rows(load, matrix):
        table.add_row(*row)
    return table


def rows(load: Load, matrix: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The figures under a load: their name, and each mode's, with its ratio to the first mode in brackets.

    By place: in what part of the steps draft 1, 2, … was accepted, where they are not too many for a column.
    """
    cells = [cell for cell in matrix["cells"] if load_of(cell) == load]
    first = cells[0]["mode"]
    ratios = {entry["mode"]: entry for entry in matrix["ratios"] if load_of(entry) == load and entry["to"] == first}
    found: list[tuple[str, ...]] = []
    for words, name, digits, unit in ROWS:
        if all(cell.get(name) is None for cell in cells):
            continue
        found.append((words, *[_cell(cell, ratios.get(cell["mode"]), name, digits, unit) for cell in cells]))
        if any(cell["intervals"].get(name) for cell in cells):
            found.append(("  95 % interval", *[_interval(cell, name, digits) for cell in cells]))
        if name == "acceptance_rate" and any(0 < len(cell[_POSITIONS]) <= _MOST_POSITIONS for cell in cells):
            found.append(("  by place, % of steps", *[_positions(cell) for cell in cells]))
    return found


def brackets(matrix: Mapping[str, Any]) -> str | None:
    """What they say; None for a single mode, which has none."""
    modes = list(dict.fromkeys(cell["mode"] for cell in matrix["cells"]))
    return f"in brackets: times {modes[0]}, the median of the rounds" if len(modes) > 1 else None


def _cell(cell: Mapping[str, Any], ratio: Mapping[str, Any] | None, name: str, digits: int, unit: float) -> str:
    value = cell.get(name)
    if value is None:
        return "-"
    if name == "errors":
        return f"{value} / {cell['timeouts']}"
    text = f"{value / unit:,.{digits}f}"
    compared = (ratio or {}).get(name)
    return f"{text} ({compared['median']:.2f})" if compared else text


def _interval(cell: Mapping[str, Any], name: str, digits: int) -> str:
    ends = cell["intervals"].get(name)
    return "-" if ends is None else f"{ends[0]:,.{digits}f}–{ends[1]:,.{digits}f}"


def _positions(cell: Mapping[str, Any]) -> str:
    shares = cell[_POSITIONS]
    return "/".join(f"{100 * share:.0f}" for share in shares) if 0 < len(shares) <= _MOST_POSITIONS else "-"


def reading(matrix: Mapping[str, Any]) -> list[str]:
    """What the ratios say, one sentence for each load and mode, with how sure that is."""
    first = matrix["cells"][0]["mode"] if matrix["cells"] else None
    return [_sentence(entry) for entry in matrix["ratios"] if entry["to"] in (first, "best") and entry["output_tok_s"]]


def failures(matrix: Mapping[str, Any]) -> list[str]:
    """Which requests failed and why, one sentence for each cell that has some."""
    return [
        f"{cell['where']}: {cell['errors']} of {many(cell['requests'], 'request')} failed: {'; '.join(cell['reasons'])}"
        for cell in matrix["cells"]
        if cell["errors"]
    ]


def unanswered(matrix: Mapping[str, Any]) -> bool:
    """Whether a cell has no whole answer, so that nothing was measured there."""
    return any(cell["errors"] == cell["requests"] for cell in matrix["cells"])


def _sentence(entry: Mapping[str, Any]) -> str:
    ratio = entry["output_tok_s"]
    to = "the better of plain and adapted in each round" if entry["to"] == "best" else entry["to"]
    words = f"{entry['where']}: {ratio['median']:.2f} times the output of {to}"
    words += f" ({ratio['min']:.2f} to {ratio['max']:.2f} over {many(ratio['rounds'], 'round')})"
    low, high = ratio.get("interval") or (0.0, 2.0)  # a single round has none
    if "interval" in ratio and low <= 1.0 <= high:
        words += ", which so few rounds and requests do not tell from no difference"
    for mode, count in entry["errors"].items():
        if count:
            words += f"; {count} of {many(entry['requests'], 'request')} of {mode} failed"
    if entry.get("same_text") is not None and entry["same_text"] < 1:
        words += f"; {entry['same_text']:.0%} of the answers are the same text"
    return words


def short(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def widest(cells: Sequence[Mapping[str, Any]], name: str) -> float:
    """The largest value of a figure, 0 without one."""
    return max((cell[name] for cell in cells if cell.get(name) is not None), default=0.0)
