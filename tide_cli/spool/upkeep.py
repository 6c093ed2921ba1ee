"""Reading every sample against its checksum, and making the index anew from the page table alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.errors import TideError
from tide_cli.spool.figures import read_ring
from tide_cli.spool.folder import INDEX_FILE, INDEX_FILES, is_damage, is_written, open_ring, unusable
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.recovery import reconcile, scan
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, damaged_files
from tide_cli.spool.ring import Ring
from tide_cli.spool.samples import SampleInfo

Tick = Callable[[int, int], None]  # samples done, samples in all


@dataclass(frozen=True)
class Verified:
    """good, overwritten: counts; overwritten ones went while they were read. damaged: ids, ascending.

    malformed: rows of the index that make no sense. Of the other samples ring and index may say different things:
    unsettled: where a writer was killed before the index had its last word; the next one to open the spool settles it,
    and nothing is lost. astray: in any other way. Both are 0 while somebody writes. kept: sound samples of the
    reservoir; kept_damaged: names of its files that are not.
    """

    good: int
    damaged: tuple[int, ...]
    overwritten: int
    malformed: int
    unsettled: int
    astray: int
    kept: int
    kept_damaged: tuple[str, ...]


@dataclass(frozen=True)
class Repaired:
    """index: what was found of it, 'intact', 'out of step', 'missing' or 'unreadable'.

    samples, tokens: in the spool now. added, removed: index rows that the page table has and the index had not, and
    the other way round. damaged: ids that were dropped because their checksum was wrong; kept_damaged: files of the
    reservoir that were removed for the same reason.
    """

    index: str
    samples: int
    tokens: int
    added: int
    removed: int
    damaged: tuple[int, ...]
    kept_damaged: tuple[str, ...]


def verify(folder: Path, tick: Tick) -> Verified:
    """Reads every sample once, while others write or not. TideError: no spool, or an unusable one."""
    written = is_written(folder)
    with closing(SpoolIndex.open(folder)) as index:
        samples, malformed, stored = index.samples(), index.malformed, index.totals().get("samples", 0)
    try:
        with closing(SpoolReader.open(folder)) as reader:
            damaged = _damaged(reader, samples, tick)
            gone = reader.overwritten
        written = written or is_written(folder)
        unsettled, astray = (0, 0) if written else _differing(folder, samples, {*damaged, *malformed}, stored)
        kept, spoilt = damaged_files(folder / RESERVOIR_FOLDER, lambda: tick(len(samples), len(samples)))
    except OSError as error:  # the ring was cut short or deleted meanwhile
        raise unusable(folder, error) from None
    return Verified(
        good=len(samples) - len(damaged) - gone,
        damaged=damaged,
        overwritten=gone if written else 0,
        malformed=len(malformed),
        unsettled=unsettled,
        astray=astray,
        kept=kept,
        kept_damaged=tuple(path.name for path in spoilt),
    )


def repair(folder: Path, tick: Tick) -> Repaired:
    """Rebuilds the index, whatever is left of it, and drops the samples whose checksum is wrong.

    The caller makes sure that nothing reads or writes the spool. TideError: no ring, a damaged header, another writer.
    """
    layout, _, size = read_ring(folder)
    state, listed = _listed(folder)
    ring, lock = open_ring(folder, layout, size, layout.page_tokens)
    try:
        if state != "intact":
            for name in INDEX_FILES:
                _clear(folder / name)
        with closing(SpoolIndex.create(folder)) as index:
            found, _ = reconcile(ring, index)
            with closing(SpoolReader.open(folder)) as reader:
                damaged = _damaged(reader, found, tick)
            ring.disown([info.pages[-1] for info in found if info.id in damaged])
            samples, _ = reconcile(ring, index)
        _, spoilt = damaged_files(folder / RESERVOIR_FOLDER, lambda: tick(len(found), len(found)))
        for path in spoilt:
            path.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        raise unusable(folder, error) from None
    finally:
        ring.close()
        os.close(lock)
    before, after = {info.id: info for info in listed}, {info.id: info for info in found}
    added = sum(before.get(sample) != info for sample, info in after.items())
    removed = sum(after.get(sample) != info for sample, info in before.items())
    if state == "intact" and (added or removed):
        state = "out of step"
    tokens, kept_damaged = sum(info.tokens for info in samples), tuple(path.name for path in spoilt)
    return Repaired(state, len(samples), tokens, added, removed, damaged, kept_damaged)


def _damaged(reader: SpoolReader, samples: list[SampleInfo], tick: Tick) -> tuple[int, ...]:
    found = []
    for done, info in enumerate(samples, start=1):
        before = reader.damaged
        reader.read(info)
        if reader.damaged > before:
            found.append(info.id)
        tick(done, len(samples))
    return tuple(sorted(found))


def _differing(folder: Path, listed: list[SampleInfo], judged: set[Any], stored: int) -> tuple[int, int]:
    """(unsettled, astray) samples, see Verified, without the ids `judged`. stored: the index's count of samples."""
    known = {info.id: info for info in listed}
    with closing(Ring.open(folder)) as ring:
        found = {info.id: info for info in scan(ring)}
        differing = [one for one in (known.keys() | found.keys()) - judged if known.get(one) != found.get(one)]
        unsettled = sum(
            one > stored if one not in known else one not in found and _was_given_up(ring, known[one])
            for one in differing
        )
    return unsettled, len(differing) - unsettled


def _was_given_up(ring: Ring, info: SampleInfo) -> bool:
    """Whether the writer took the sample's id away, or gave the page with it to another one since."""
    last = ring.table[info.pages[-1]]
    return bool(not last["owner"] or (last["owner"] != info.id and last["generation"] != info.generations[-1]))


def _listed(folder: Path) -> tuple[str, list[SampleInfo]]:
    """What is left of the index: 'intact', 'missing' or 'unreadable', and its rows."""
    if not (folder / INDEX_FILE).exists():
        return "missing", []
    try:
        with closing(SpoolIndex.open(folder)) as index:
            index.totals()
            samples = index.samples()
            return "unreadable" if index.malformed else "intact", samples
    except TideError as error:
        if isinstance(error.__cause__, sqlite3.Error) and not is_damage(error.__cause__, folder):
            raise
        return "unreadable", []


def _clear(path: Path) -> None:
    """Whatever is there: the index is made of the ring alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
