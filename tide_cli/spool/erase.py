"""Erasing stored samples for good: which ones, asked of a running engine or done here.

A running engine holds the ring, so it is asked: `ask` leaves `erase-N.json` in the spool's folder, the key `tide_erase`
of POST /set_internal_state tells the engine the number N, and its capture thread answers with `erase-N.done.json`.
Where no engine holds the ring, `erase_offline` opens it. The reservoir belongs to the trainer and is erased in either
case by `reservoir.erase_kept`. No torch.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object
from tide_cli.printable import many

if TYPE_CHECKING:
    from tide_cli.spool.writer import SpoolWriter

_ASK_AGAIN = 0.1  # seconds between two looks for the answer


@dataclass(frozen=True)
class Which:
    """The samples to erase: all of them, or those with these ids, or those created before this unix second."""

    everything: bool = False
    ids: tuple[int, ...] = ()
    before: float | None = None

    def __call__(self, sample: int, created: float) -> bool:
        return self.everything or sample in self.ids or (self.before is not None and created < self.before)


@dataclass(frozen=True)
class Erased:
    """samples: given up; pages: overwritten with zeros, leavings of earlier requests included; kept_shared: pages of
    those samples that others hold, and which therefore stay; bytes: size of the pages overwritten; ids: of those
    samples."""

    samples: int
    pages: int
    kept_shared: int
    bytes: int
    ids: tuple[int, ...] = ()


def erase_offline(folder: Path, which: Which, say: Callable[[str], None] = lambda words: None) -> Erased:
    """Erases in a spool that no engine holds, and waits for the disk. TideError: none there, taken, or unusable.

    A full disk does not hinder it; `say` is told what is still to be done then.
    """
    # the writer needs what is here
    from tide_cli.spool.folder import is_full, no_ring
    from tide_cli.spool.ring import Ring
    from tide_cli.spool.writer import SpoolWriter

    try:
        ring = Ring.open(folder)
    except OSError as error:
        raise no_ring(folder, error) from None
    layout = ring.layout
    ring.close()
    open_writer = partial(
        SpoolWriter.open, folder, layout, 0, run="erase", max_sample_tokens=layout.page_tokens, held_out_share=0
    )
    try:
        writer = open_writer()
    except TideError as error:  # the index cannot be written
        cause = error.__cause__
        if not (isinstance(cause, Exception) and is_full(cause)):
            raise
        writer = open_writer(index_in_memory=True)
        say(_lags(cause))
    return _erase(writer, folder, which, say)


def _erase(writer: SpoolWriter, folder: Path, which: Which, say: Callable[[str], None]) -> Erased:
    from tide_cli.spool.folder import is_full

    erased = None
    try:
        erased = writer.begin_erase(which)
        while writer.wipe(2**30):
            pass
        try:
            writer.scrub()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            say(_lags(error))  # what was erased is erased
        writer.sync()
    except (OSError, sqlite3.Error) as error:
        why = reason(error)
        if erased:
            samples, pages = many(erased.samples, "sample"), many(erased.pages, "page")
            why += f"; so far {samples} given up, at most {pages} overwritten"
        raise TideError(f"the spool in {folder} is not erased", why=why, remedy="try again") from error
    finally:
        writer.close()
    return erased


def _lags(error: Exception) -> str:
    words = "it keeps the figures, not the contents, of what is erased until it can be written again"
    return f"its index: {reason(error)}: {words}"


def ask(folder: Path, which: Which) -> int:
    """Leaves a request for the engine; returns the number that `tide_erase` is to name. OSError."""
    number = time.time_ns() // 1000  # microseconds: exact as a float
    path = folder / f"erase-{number}.json"
    _write(path, asdict(which))
    return number


def read_request(folder: Path, number: int) -> Which:
    """What was asked. TideError where there is no such request, or a wrong one."""
    path = folder / f"erase-{number}.json"
    try:
        fields = read_object(path)
        return Which(**{**fields, "ids": tuple(int(sample) for sample in fields.get("ids", ()))})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TideError(f"{path} is no request to erase", why=reason(error)) from None


def answer(folder: Path, number: int, erased: Erased | None, error: str | None = None) -> None:
    """The engine's answer, in the place of the request. OSError."""
    fields = asdict(erased) if erased else {"error": error}
    _write(folder / f"erase-{number}.done.json", fields)
    (folder / f"erase-{number}.json").unlink(missing_ok=True)


def wait_for_answer(folder: Path, number: int, timeout: float) -> Erased:
    """The engine's answer, awaited, and everything on the disk. TideError where it failed or does not come in time."""
    from tide_cli.spool.ring import RING_FILE

    path = folder / f"erase-{number}.done.json"
    deadline = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > deadline:
            withdraw(folder, number)
            remedy = "`tide status` says how it is; then erase once more"
            raise TideError("the engine has not said that the samples are erased", remedy=remedy)
        time.sleep(_ASK_AGAIN)
    fields = json.loads(path.read_text())
    path.unlink()
    if "error" in fields:
        raise TideError("the engine could not erase the samples", why=fields["error"], remedy="`tide down`; then erase")
    ring = os.open(folder / RING_FILE, os.O_RDONLY)
    try:
        os.fsync(ring)
    finally:
        os.close(ring)
    return Erased(**fields | {"ids": tuple(fields["ids"])})


def withdraw(folder: Path, number: int) -> None:
    """Takes a request back that the engine refused or did not answer."""
    (folder / f"erase-{number}.json").unlink(missing_ok=True)


def _write(path: Path, fields: dict[str, Any]) -> None:
    unfinished = path.with_suffix(".new")
    try:
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w") as stream:
            json.dump(fields, stream)
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
