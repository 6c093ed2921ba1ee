"""The mapped file of pages: creating it, opening it, its regions as arrays."""

from __future__ import annotations

import mmap
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tide_cli.errors import TideError, reason
from tide_cli.printable import size_words
from tide_cli.spool.layout import HEADER, OPENINGS_OFFSET, PAGE_ENTRY, SAMPLE_FIELDS, RowLayout, parse_header
from tide_cli.spool.samples import SampleInfo

if TYPE_CHECKING:
    from torch import Tensor

    States = Tensor | np.ndarray  # bfloat16 values, or uint16 with their bits

RING_FILE = "ring.bin"
# left to the rest of the system when a ring is made: logs, the index, published drafts
_DISK_RESERVE = 64 * 2**20


class Ring:
    """A ring's regions as numpy arrays over one shared mapping; see layout.py for the bytes.

    table [N] PAGE_ENTRY; tokens [R] int32; checks [R] uint64; aux [R, 3H] and final [R, H] uint16 (bfloat16 bits);
    openings [1] uint64; R = N * P rows. Read-only arrays unless opened writable.
    """

    def __init__(self, file: int, layout: RowLayout, pages: int, *, writable: bool) -> None:
        regions = layout.regions(pages)
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.layout, self.pages, self.size_bytes = layout, pages, regions.size
        self._map = mmap.mmap(file, regions.size, flags=mmap.MAP_SHARED, prot=access)
        self._file = os.dup(file)
        rows, hidden = pages * layout.page_tokens, layout.hidden_size
        self.openings = np.frombuffer(self._map, "<u8", 1, OPENINGS_OFFSET)
        self.table = np.frombuffer(self._map, PAGE_ENTRY, pages, regions.table)
        self.tokens = np.frombuffer(self._map, "<i4", rows, regions.tokens)
        self.checks = np.frombuffer(self._map, "<u8", rows, regions.checks)
        self.aux = np.frombuffer(self._map, "<u2", rows * 3 * hidden, regions.aux).reshape(rows, 3 * hidden)
        self.final = np.frombuffer(self._map, "<u2", rows * hidden, regions.final).reshape(rows, hidden)

    @classmethod
    def create(
        cls, folder: Path, layout: RowLayout, size_bytes: int, *, before: Callable[[], None] = lambda: None
    ) -> Ring:
        """A new, empty ring of at most `size_bytes` bytes, every byte of it reserved on the disk.

        It gets its name only when complete; `before` is called just before. TideError when the disk cannot hold it.
        """
        pages = layout.pages_in(size_bytes)
        if pages < 1:
            raise ValueError(f"not one page of {layout.bytes_per_page} bytes fits into {size_bytes}")
        size = layout.regions(pages).size
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        if size + _DISK_RESERVE > free:
            raise _disk_too_small(folder, size, f"{size_words(free)} are free there")
        unfinished = folder / (RING_FILE + ".new")
        file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
            try:
                os.posix_fallocate(file, 0, size)
            except OSError as error:
                raise _disk_too_small(folder, size, reason(error)) from None
            os.pwrite(file, layout.header(pages), 0)
            os.fsync(file)
            ring = cls(file, layout, pages, writable=True)
            before()
            os.replace(unfinished, folder / RING_FILE)
            return ring
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    @classmethod
    def open(cls, folder: Path, *, writable: bool = False) -> Ring:
        """The ring in `folder`. FileNotFoundError when there is none, OSError when the disk has no room for what a copy
        has left out, TideError when it is damaged."""
        path = folder / RING_FILE
        # not blocking: a pipe in its place would be waited for
        file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError("it is no file")
            layout, pages = parse_header(os.pread(file, HEADER.itemsize, 0))
            if os.fstat(file).st_size != layout.regions(pages).size:
                raise ValueError("the file's size does not fit its header")
            if writable:
                # a copy may have holes: no room for one of them would end the process that writes there (SIGBUS)
                for hole in _holes(file):
                    os.posix_fallocate(file, hole.start, len(hole))
            return cls(file, layout, pages, writable=writable)
        except ValueError as error:
            remedy = f"delete {path} to begin with an empty ring, or all of {folder}, with what is kept for replay"
            raise TideError(f"{path} is not a usable spool", why=reason(error), remedy=remedy) from None
        finally:
            os.close(file)

    def unallocated(self) -> int:
        """Bytes of the file for which the disk has yet to find room."""
        return sum(map(len, _holes(self._file)))

    def check(self) -> None:
        """OSError where the file was cut short or deleted: touching a page of the mapping beyond its end would end the
        process (SIGBUS)."""
        status = os.fstat(self._file)
        if status.st_size < self.size_bytes:
            raise OSError(f"the ring's file was cut to {status.st_size} of its {self.size_bytes} bytes")
        if not status.st_nlink:
            raise OSError("the ring's file was deleted")

    def holds(self, pages: Sequence[int], generations: Sequence[int]) -> bool:
        """Whether every one of `pages` still has its generation."""
        found = self.table["generation"][np.asarray(pages, np.intp)]
        return bool((found == np.asarray(generations, "<u8")).all())

    def rows_of(self, pages: Sequence[int], first: int, count: int) -> np.ndarray:
        """Ring rows of the positions first … first+count-1 of a sequence whose `pages` begin with first's."""
        size = self.layout.page_tokens
        rows = (np.asarray(pages, np.intp)[:, None] * size + np.arange(size)).ravel()
        return rows[first % size :][:count]

    def clear(self, rows: np.ndarray) -> None:
        """Overwrites those of `rows` with zeros in which anything stands."""
        left = rows[(self.tokens[rows] != 0) | (self.checks[rows] != 0)]
        if len(left):
            self.aux[left] = self.final[left] = 0
            # last: by these a row that a kill left half cleared is found again
            self.tokens[left] = self.checks[left] = 0

    def disown(self, last: int | Sequence[int] | np.ndarray) -> None:
        """No sample ends in the pages `last` any more, given as numbers or as a mask [N]. The figures go as well as the
        id: a page that others hold is not wiped."""
        for name in SAMPLE_FIELDS:
            self.table[name][last] = 0

    def sync(self) -> None:
        """Waits until everything written is on the disk. OSError."""
        os.fsync(self._file)

    def close(self) -> None:
        """Drops the arrays and the mapping; a mapping that somebody still looks into goes with its last view."""
        for name in ("openings", "table", "tokens", "checks", "aux", "final"):
            self.__dict__.pop(name, None)
        with suppress(BufferError):
            self._map.close()
        if self._file >= 0:  # closed twice, it might be another's by then
            os.close(self._file)
        self._file = -1


def row_words(states: States) -> np.ndarray:
    """bfloat16 values as their bits: [k, columns] uint16, contiguous, over the same memory where that is possible."""
    if isinstance(states, np.ndarray):
        return np.ascontiguousarray(states, "<u2")
    import torch

    if states.dtype is not torch.bfloat16 or states.requires_grad:
        states = states.detach().to(torch.bfloat16)
    return states.contiguous().view(torch.uint16).numpy()


def row_sums(aux: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Checks of rows: aux [k, 3H] and final [k, H] uint16, contiguous -> [k] uint64."""
    # a sum runs at memory speed, which CRC-32 does not; the CRC over the sums (see checksum) fixes their order
    return np.add.reduce(aux.view("<u8"), axis=1) + np.add.reduce(final.view("<u8"), axis=1)


def sample_figures(info: SampleInfo) -> dict[str, Any]:
    """The sample's part of its last page's entry, field by field; without the owner, which is written last."""
    return {
        "created": info.created,
        "tokens": info.tokens,
        "prompt_tokens": info.prompt_tokens,
        "prefix_missing": info.prefix_missing,
        "cut": info.cut,
        "reused": info.reused,
        "verify_steps": info.verify_steps,
        "accepted": info.accepted,
        "draft_version": info.draft_version,
        "held_out": info.split == "held_out",
        "checksum": info.checksum,
        "run": info.run.encode(),
        "domain": info.domain.encode(),
    }


def checksum(info: SampleInfo, tokens: np.ndarray, checks: np.ndarray) -> int:
    """A sample's checksum from its figures, its token ids [T] int32 and its row checks [T] uint64."""
    entry = np.zeros((), PAGE_ENTRY)
    for name, value in sample_figures(info).items():
        entry[name] = value
    entry["owner"], entry["checksum"] = info.id, 0
    value = zlib.crc32(entry.tobytes())
    value = zlib.crc32(np.ascontiguousarray(tokens, "<i4").data, value)
    return zlib.crc32(np.ascontiguousarray(checks, "<u8").data, value)


def _disk_too_small(folder: Path, size: int, why: str) -> TideError:
    remedy = "ask for a smaller one with --spool-size, or free some space"
    return TideError(f"{folder} cannot hold a spool of {size_words(size)}", why=why, remedy=remedy)


def _holes(file: int) -> list[range]:
    """Parts of the file that no block of the disk stands behind."""
    status = os.fstat(file)
    size, found, at = status.st_size, [], 0
    if status.st_blocks * 512 >= size:
        return []
    while at < size and (start := os.lseek(file, at, os.SEEK_HOLE)) < size:
        try:
            at = os.lseek(file, start, os.SEEK_DATA)
        except OSError:  # there is none behind
            at = size
        found.append(range(start, at))
    return found
