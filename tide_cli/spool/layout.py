"""What `ring.bin` looks like on disk, byte by byte.

All integers are little-endian. H is the target's hidden size, P the tokens of a page, N the number of pages.
A *row* is one token's place in the ring: row r belongs to page r // P. Five regions follow each other, each
starting at a multiple of 4096 bytes:

    region      bytes        contents
    header      4096         magic "TIDERING", version u32, H u32, P u32, CRC-32 of the header with this field 0 u32,
                             N u64, target name (512 bytes of UTF-8, NUL-padded), zeros
    page table  N * 128      one PAGE_ENTRY per page, see below
    tokens      N * P * 4    token ids, int32
    checks      N * P * 8    u64 per row: the row's aux and final states as 64-bit words, summed modulo 2**64
    aux         N * P * 6H   aux states, bfloat16, 3H columns
    final       N * P * 2H   final states, bfloat16, H columns

A page entry has 128 bytes:

    owner u64           sample id, 0 while the page is free or belongs to a request that still runs. Ids never come
                        back, so the owner is also the page's generation: a copy is good if all its pages had the
                        sample's id as owner after the copy. Written last when a sample is finished, zeroed first
                        when its pages are given back
    created f64         unix seconds
    ordinal u32         place of this page in the sample, from 0
    page_count u32      pages of the sample
    tokens u32          rows stored; they start in the first slot of page 0
    prompt_tokens u32   length of the prompt, missing prefix included
    prefix_missing u32  position of the first stored row
    verify_steps u32    verify steps of the request
    accepted u32        draft tokens accepted in them
    draft_version i32   version of the draft that proposed
    held_out u32        1: never trained on
    checksum u32        CRC-32 over this entry (owner set; ordinal and checksum 0), then the sample's token ids, then
                        its row checks
    run 48 bytes        id of the engine run, UTF-8, NUL-padded
    reserved 24 bytes   zeros

All but `ordinal` is the same in every page of a sample: the page table alone is enough to rebuild the index.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

MAGIC = b"TIDERING"
VERSION = 1
ALIGNMENT = 4096
# the header, and what rounding up each of the other five regions may add
_ROUNDING = 6 * ALIGNMENT

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("hidden_size", "<u4"),
        ("page_tokens", "<u4"),
        ("checksum", "<u4"),
        ("pages", "<u8"),
        ("target", "S512"),
    ]
)

PAGE_ENTRY = np.dtype(
    [
        ("owner", "<u8"),
        ("created", "<f8"),
        ("ordinal", "<u4"),
        ("page_count", "<u4"),
        ("tokens", "<u4"),
        ("prompt_tokens", "<u4"),
        ("prefix_missing", "<u4"),
        ("verify_steps", "<u4"),
        ("accepted", "<u4"),
        ("draft_version", "<i4"),
        ("held_out", "<u4"),
        ("checksum", "<u4"),
        ("run", "S48"),
        ("reserved", "V24"),
    ]
)


@dataclass(frozen=True)
class RowLayout:
    """What one row holds. Two rings with equal layouts can be read by the same code.

    hidden_size: H, a multiple of 4 so that rows are whole 64-bit words.
    target: name of the served model; states of another model are worthless even where H is the same.
    """

    hidden_size: int
    page_tokens: int = 16
    version: int = VERSION
    target: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.hidden_size < 4 or self.hidden_size % 4:
            raise ValueError(f"hidden_size must be a positive multiple of 4, not {self.hidden_size}")
        if self.page_tokens < 1:
            raise ValueError(f"page_tokens must be positive, not {self.page_tokens}")
        if not 0 < len(self.target.encode()) <= HEADER["target"].itemsize:
            raise ValueError(f"the target's name must have 1 to {HEADER['target'].itemsize} bytes")

    @property
    def bytes_per_page(self) -> int:
        """Bytes a page takes in all regions together."""
        return PAGE_ENTRY.itemsize + self.page_tokens * (4 + 8 + 8 * self.hidden_size)

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` rows take."""
        return -(-tokens // self.page_tokens)

    def pages_in(self, size_bytes: int) -> int:
        """Most pages of a ring whose file has at most `size_bytes` bytes; 0 if not even one fits."""
        return max(0, (size_bytes - _ROUNDING) // self.bytes_per_page)

    def size_for(self, pages: int) -> int:
        """A size that has room for `pages` pages: pages_in(size_for(n)) == n."""
        return pages * self.bytes_per_page + _ROUNDING

    def regions(self, pages: int) -> Regions:
        """Where the regions of a ring of `pages` pages start, in bytes."""
        rows = pages * self.page_tokens
        sizes = (
            HEADER.itemsize,
            pages * PAGE_ENTRY.itemsize,
            rows * 4,
            rows * 8,
            rows * 6 * self.hidden_size,
            rows * 2 * self.hidden_size,
        )
        ends = [0]
        for size in sizes:
            ends.append(-(-(ends[-1] + size) // ALIGNMENT) * ALIGNMENT)
        return Regions(*ends[1:])

    def header(self, pages: int) -> bytes:
        """The file header of a ring of `pages` pages."""
        record = np.zeros((), HEADER)
        record["magic"], record["version"] = MAGIC, self.version
        record["hidden_size"], record["page_tokens"] = self.hidden_size, self.page_tokens
        record["pages"], record["target"] = pages, self.target.encode()
        record["checksum"] = zlib.crc32(record.tobytes())
        return record.tobytes()


@dataclass(frozen=True)
class Regions:
    """Byte offsets of the regions after the header, and the size of the whole file."""

    table: int
    tokens: int
    checks: int
    aux: int
    final: int
    size: int


def parse_header(data: bytes) -> tuple[RowLayout, int]:
    """Header bytes -> (layout, pages). Raises ValueError, in words, when it is not an intact header."""
    if len(data) < HEADER.itemsize:
        raise ValueError("the file is shorter than a header")
    record = np.frombuffer(data[: HEADER.itemsize], HEADER)[0].copy()
    if bytes(record["magic"]) != MAGIC:
        raise ValueError("the file does not start like a ring")
    checksum, record["checksum"] = int(record["checksum"]), 0
    if zlib.crc32(record.tobytes()) != checksum:
        raise ValueError("the header's checksum is wrong")
    layout = RowLayout(
        hidden_size=int(record["hidden_size"]),
        page_tokens=int(record["page_tokens"]),
        version=int(record["version"]),
        target=bytes(record["target"]).decode(),
    )
    return layout, int(record["pages"])


def row_runs(pages: Sequence[int], page_tokens: int, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Slots first … first+count-1 of a sample as runs of neighbouring rows.

    pages: the sample's pages in order; slot s lies in pages[s // page_tokens].
    Yields (ring row, offset from `first`, length). Neighbouring pages make one run, so that copies are few and long.
    """
    offset = 0
    while offset < count:
        page, inside = divmod(first + offset, page_tokens)
        row = pages[page] * page_tokens + inside
        length = page_tokens - inside
        while offset + length < count and pages[page + 1] == pages[page] + 1:
            page += 1
            length += page_tokens
        length = min(length, count - offset)
        yield row, offset, length
        offset += length
