"""The spool at one moment, from its header, its index and the reservoir's file sizes: no row is read, no torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tide_cli.spool.folder import is_written, no_ring
from tide_cli.spool.layout import RowLayout, row_bytes
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER
from tide_cli.spool.ring import Ring
from tide_cli.spool.samples import SampleInfo

_DROPPED = "dropped_"


@dataclass(frozen=True)
class SpoolFigures:
    """What `tide spool stat` tells. Sizes in bytes, times in unix seconds, ages in seconds.

    pages_used: pages that finished samples hold, a shared one counted once; fill: their part of all pages.
    by_split, by_draft, by_domain: {name: {"samples", "tokens"}}; the unlabelled ones have the domain "".
    age: {"oldest", "median", "newest"}, None without samples.
    index_only: samples that the index still names and the ring has given up, though nobody writes; they are in no other
    figure. stored: samples, tokens and whatever else was counted since the spool was made. dropped: requests by cause.
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
    by_domain: dict[str, dict[str, int]]
    oldest: float | None
    newest: float | None
    age: dict[str, float] | None
    stored: dict[str, int]
    dropped: dict[str, int]
    reservoir: dict[str, int]
    index_only: int


def take_figures(folder: Path, now: float) -> SpoolFigures:
    """The figures of the spool in `folder`; now: unix seconds. TideError: no spool, or an unusable one."""
    layout, pages, size = read_ring(folder)
    with closing(SpoolReader.open(folder)) as reader:
        listed, totals = reader.samples(), reader.totals()
        samples = reader.held(listed)
    used = len({page for info in samples for page in info.pages})
    created = [info.created for info in samples]
    kept = _sizes(folder / RESERVOIR_FOLDER)
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
        by_domain=_grouped(
            {name: [i for i in samples if i.domain == name] for name in sorted({info.domain for info in samples})}
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
        stored={name: count for name, count in totals.items() if not name.startswith(_DROPPED)},
        dropped={
            name.removeprefix(_DROPPED): count for name, count in sorted(totals.items()) if name.startswith(_DROPPED)
        },
        reservoir={"samples": len(kept), "bytes": sum(kept)},
        index_only=0 if is_written(folder) else len(listed) - len(samples),
    )


def read_ring(folder: Path) -> tuple[RowLayout, int, int]:
    """(layout, pages, bytes) of the ring in `folder`. TideError: none there, or an unusable one."""
    try:
        ring = Ring.open(folder)
    except OSError as error:
        raise no_ring(folder, error) from None
    found = ring.layout, ring.pages, ring.size_bytes
    ring.close()
    return found


def _sizes(folder: Path) -> list[int]:
    """Bytes of each of the reservoir's files; the trainer may remove one at any moment."""
    sizes = []
    for path in folder.glob("*.safetensors"):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes


def _grouped(groups: dict[str, Sequence[SampleInfo]]) -> dict[str, dict[str, int]]:
    return {
        name: {"samples": len(infos), "tokens": sum(info.tokens for info in infos)} for name, infos in groups.items()
    }
