"""The figures of `tide bench spool` as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

_MISSING = ".venv/bin/pip install --group bench"
CAPTION = "MB/s: median (quartiles). One thread; nothing syncs but SQLite's checkpoints of the spool's index."
_ROWS = (
    ("spool, ingest", "ingest_mb_s"),
    ("  prompts", "ingest_prefill_mb_s"),
    ("  verify steps", "ingest_decode_mb_s"),
    ("memcpy, ingest", "memcpy_mb_s"),
    ("  spool / memcpy", "ingest_to_memcpy"),
    ("  of prompts", "ingest_prefill_to_memcpy"),
    ("  of verify steps", "ingest_decode_to_memcpy"),
    ("LMDB, ingest", "lmdb_mb_s"),
    ("  spool / LMDB", "ingest_to_lmdb"),
    ("LMDB writemap, ingest", "lmdb_writemap_mb_s"),
    ("  spool / LMDB writemap", "ingest_to_lmdb_writemap"),
    ("spool, CPU s/GiB", "spool_cpu_s_per_gib"),
    ("memcpy, CPU s/GiB", "memcpy_cpu_s_per_gib"),
    ("LMDB, CPU s/GiB", "lmdb_cpu_s_per_gib"),
    ("LMDB writemap, CPU s/GiB", "lmdb_writemap_cpu_s_per_gib"),
    ("spool, reading", "spool_read_mb_s"),
    ("memcpy, reading", "memcpy_read_mb_s"),
    ("LMDB, reading", "lmdb_read_mb_s"),
    ("LMDB writemap, reading", "lmdb_writemap_read_mb_s"),
)


def as_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One column for each hidden size: medians of the rounds, quartiles in brackets."""
    first = results[0]
    place = f"{first['store_bytes'] / 2**20:,.0f} MiB each, on {first['filesystem']}"
    table = Table(
        title=f"Spool, memcpy and LMDB in turns\n{place}",
        caption=CAPTION,
        box=box.SIMPLE,
        title_justify="left",
        caption_justify="left",
    )
    header, rows = spool_rows(results)
    table.add_column(header[0], no_wrap=True)
    for name in header[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def spool_rows(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of that table."""
    header = ["", *[f"H = {result['hidden_size']}\n{result['row_bytes']:,} bytes a token" for result in results]]
    rows = [["rounds", *[str(result["rounds"]) for result in results]]]
    rows += [[words, *[_cell(result, name) for result in results]] for words, name in _ROWS]
    for words, name, form in (
        (f"paced, {results[0]['paced']['rate']:,.0f} tokens/s", "tokens_s", "{:,.0f}"),
        ("  MB/s", "mb_s", "{:,.0f}"),
        ("  share of one core", "core_share", "{:.1%}"),
        ("  ms a call, median", "call_ms_p50", "{:.3f}"),
        ("  ms a call, 99 %", "call_ms_p99", "{:.3f}"),
    ):
        rows.append([words, *[form.format(result["paced"][name]).replace("%", " %") for result in results]])
    rows.append(["writer's calls, ms (99 %)", *["" for _ in results]])
    for reader, words in (("absent", "no reader"), ("slow", "a slow one"), ("stopped", "a stopped one")):
        calls = [result["writer_call_ms"][reader] for result in results]
        rows.append([f"  {words}", *[f"{call['p50']:.3f} ({call['p99']:.3f})" for call in calls]])
    return header, rows


def _cell(result: Mapping[str, Any], name: str) -> str:
    median = result[name]
    if median is None:
        return _MISSING if name.endswith("mb_s") else "-"
    low, high = result["spread"][name]
    digits = 0 if name.endswith("mb_s") else 2
    return f"{median:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"
