"""The spool at one moment, from its header, its index and the reservoir's file sizes: no row is read, no torch."""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tide_cli.errors import TideError
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.ring import RING_FILE, Ring
from tide_cli.spool.samples import SampleInfo

RESERVOIR_FOLDER = "reservoir"
_DROPPED = "dropped_"


@dataclass(frozen=True)
class SpoolFigures:
    """What `tide spool stat` tells. Sizes in bytes, times in unix seconds, ages in seconds.

    pages_used: pages that finished samples hold, a shared one counted once; fill: their part of all pages.
    by_split, by_draft: {name: {"samples", "tokens"}}. age: {"oldest", "median", "newest"}, None without samples.
    stored: samples and tokens since the spool was made. dropped: requests by cause, since then.
    """

    folder: str
    target: str
    hidden_size: int
    page_tokens: int
    format: int
    row_bytes: int
    size_bytes: int
    pages: int
    pages_used: int
    fill: float
    samples: int
    tokens: int
    generated: int
    by_split: dict[str, dict[str, int]]
    by_draft: dict[str, dict[str, int]]
    oldest: float | None
    newest: float | None
    age: dict[str, float] | None
    stored: dict[str, int]
    dropped: dict[str, int]
    reservoir: dict[str, int]


def take_figures(folder: Path, now: float) -> SpoolFigures:
    """The figures of the spool in `folder`; now: unix seconds. TideError: no spool, or an unusable one."""
    layout, pages, size = read_ring(folder)
    with reading(folder) as index:
        samples, totals = index.samples(), index.totals()
    used = len({page for info in samples for page in info.pages})
    created = [info.created for info in samples]
    kept = [path.stat().st_size for path in (folder / RESERVOIR_FOLDER).glob("*.safetensors")]
    return SpoolFigures(
        folder=str(folder),
        target=layout.target,
        hidden_size=layout.hidden_size,
        page_tokens=layout.page_tokens,
        format=layout.version,
        row_bytes=row_bytes(layout.hidden_size),
        size_bytes=size,
        pages=pages,
        pages_used=used,
        fill=used / pages,
        samples=len(samples),
        tokens=sum(info.tokens for info in samples),
        generated=sum(info.generated for info in samples),
        by_split=_grouped({split: [i for i in samples if i.split == split] for split in ("train", "held_out")}),
        by_draft=_grouped(
            {
                f"v{version:04d}": [info for info in samples if info.draft_version == version]
                for version in sorted({info.draft_version for info in samples})
            }
        ),
        oldest=min(created, default=None),
        newest=max(created, default=None),
        age={
            "oldest": now - min(created),
            "median": now - statistics.median(created),
            "newest": now - max(created),
        }
        if created
        else None,
        stored={name: totals.get(name, 0) for name in ("samples", "tokens")},
        dropped={
            name.removeprefix(_DROPPED): count for name, count in sorted(totals.items()) if name.startswith(_DROPPED)
        },
        reservoir={"samples": len(kept), "bytes": sum(kept)},
    )


def read_ring(folder: Path) -> tuple[RowLayout, int, int]:
    """(layout, pages, bytes) of the ring in `folder`. TideError: none there, or an unusable one."""
    try:
        ring = Ring.open(folder)
    except OSError as error:
        remedy = "serve something with capture on: tide up"
        raise TideError(f"there is no spool in {folder}", why=error.strerror, remedy=remedy) from None
    found = ring.layout, ring.pages, ring.size_bytes
    ring.close()
    return found


def row_bytes(hidden_size: int) -> int:
    """Bytes of one token in the ring: aux states, final state, token id, check."""
    return 8 * hidden_size + 4 + 8


@contextmanager
def reading(folder: Path) -> Iterator[SpoolIndex]:
    """The index, closed afterwards. TideError, also for what goes wrong inside, with the way to mend it."""
    try:
        index = SpoolIndex.open(folder)
    except TideError as error:
        if (folder / RING_FILE).is_file():
            raise _unreadable(folder, error.why) from None
        raise
    try:
        yield index
    except sqlite3.Error as error:
        raise _unreadable(folder, str(error)) from None
    finally:
        index.close()


def _unreadable(folder: Path, why: str | None) -> TideError:
    remedy = "`tide spool repair` rebuilds it from the ring"
    return TideError(f"the index of the spool in {folder} is missing or unreadable", why=why, remedy=remedy)


def _grouped(groups: dict[str, Sequence[SampleInfo]]) -> dict[str, dict[str, int]]:
    return {
        name: {"samples": len(infos), "tokens": sum(info.tokens for info in infos)} for name, infos in groups.items()
    }
