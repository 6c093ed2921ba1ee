"""What `ring.bin` looks like on disk, byte by byte.

All integers are little-endian. H is the target's hidden size, P the tokens of a page, N the number of pages.
A *row* is one token's place in the ring: row r belongs to page r // P. The row of position p of a sequence lies in
slot p % P of the sequence's page number p // P, so that sequences with a common beginning can share its pages.
Five regions follow each other, each starting at a multiple of 4096 bytes:

    region      bytes        contents
    header      4096         magic "TIDERING", version u32, H u32, P u32, CRC-32 of all this with this field 0 u32,
                             N u64, target name (512 bytes of UTF-8, NUL-padded), zeros; in the last 8 bytes, which no
                             CRC covers, how often the ring was opened for writing, u64
    page table  N * 128      one PAGE_ENTRY per page, see below
    tokens      N * P * 4    token ids, int32
    checks      N * P * 8    u64 per row: the row's aux and final states as 64-bit words, summed modulo 2**64
    aux         N * P * 6H   aux states, bfloat16, 3H columns
    final       N * P * 2H   final states, bfloat16, H columns

A page entry has 128 bytes. The first part belongs to the page, and is written once, when the page gets its last row:

    generation u64       0 while the page is free or being written; else a number that no page has had before: the
                         opening (see header) times 2**40, plus a count. A copy is good if every page had the generation
                         that the sample was stored with after the copy. Written last, zeroed first
    link_generation u64  generation of link_page when this page was written; 0: the sequence begins here
    link_page u32        the page before this one in the sequence
    ordinal u32          the page's number in the sequence: position of its first slot // P

A page never changes while it has a generation, and any number of samples may hold it. Its slots without a row are
zero: a page is not wiped when it is used again, and what was erased would live on in them. A sample is named by its
last page, which is always its own; the second part of that page's entry is the sample's, and zero without one:

    owner u64            sample id; 0 where no sample ends in this page. Ids never come back. Written last when a
                         sample is finished, zeroed first when it is evicted or erased
    created f64          unix seconds
    tokens u32           rows stored
    prompt_tokens u32    length of the prompt, missing prefix included
    prefix_missing u32   position of the first stored row
    cut u32              rows that were there but were dropped from the front of a sequence too long for a sample
    reused u32           rows that were not computed for this sample but taken over from pages of earlier ones
    verify_steps u32     verify steps of the request
    accepted u32         draft tokens accepted in them
    draft_version i32    version of the draft that proposed
    held_out u32         1: never trained on
    checksum u32         CRC-32 over this entry (the page's part and checksum 0), then the sample's token ids, then its
                         row checks
    run 12 bytes         id of the engine run, UTF-8, NUL-padded
    domain 36 bytes      the label that the client gave the request, UTF-8, NUL-padded; empty where it gave none. Older
                         rings of this format had 48 bytes for the run, of which 12 were used: they read as unlabelled

The page table alone is enough to rebuild the index: from each page with an owner back along the links, to the page
of position prefix_missing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

MAGIC = b"TIDERING"
VERSION = 2
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

# where in the file the number of openings stands
OPENINGS_OFFSET = ALIGNMENT - 8

PAGE_ENTRY = np.dtype(
    [
        ("generation", "<u8"),
        ("link_generation", "<u8"),
        ("link_page", "<u4"),
        ("ordinal", "<u4"),
        ("owner", "<u8"),
        ("created", "<f8"),
        ("tokens", "<u4"),
        ("prompt_tokens", "<u4"),
        ("prefix_missing", "<u4"),
        ("cut", "<u4"),
        ("reused", "<u4"),
        ("verify_steps", "<u4"),
        ("accepted", "<u4"),
        ("draft_version", "<i4"),
        ("held_out", "<u4"),
        ("checksum", "<u4"),
        ("run", "S12"),
        ("domain", "S36"),
    ]
)

# what an entry says of the sample that ends in its page: the id first, then the figures
SAMPLE_FIELDS = (PAGE_ENTRY.names or ())[4:]


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
        return PAGE_ENTRY.itemsize + self.page_tokens * row_bytes(self.hidden_size)

    def pages_for(self, tokens: int) -> int:
        """Pages that the first `tokens` rows of a sequence take."""
        return -(-tokens // self.page_tokens)

    def page_numbers(self, first: int, tokens: int) -> range:
        """Numbers, in their sequence, of the pages that hold `tokens` rows from position `first` on."""
        return range(first // self.page_tokens, self.pages_for(first + tokens))

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


def row_bytes(hidden_size: int) -> int:
    """Bytes of one token in the ring: aux states, final state, token id, check."""
    return 8 * hidden_size + 4 + 8


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
    if record["version"] != VERSION:
        raise ValueError(f"it is of format {record['version']}, and this version of TIDE reads format {VERSION}")
    if not record["pages"]:
        raise ValueError("it has no pages")
    layout = RowLayout(
        hidden_size=int(record["hidden_size"]),
        page_tokens=int(record["page_tokens"]),
        version=int(record["version"]),
        target=bytes(record["target"]).decode(),
    )
    return layout, int(record["pages"])


def row_runs(pages: Sequence[int], page_tokens: int, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Slots first … first+count-1 of some pages as runs of neighbouring rows.

    pages: in order; slot s lies in pages[s // page_tokens].
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
