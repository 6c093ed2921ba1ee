"""The spool at full row size: the ring's own page arithmetic, by default without its bytes.

A sample takes the pages that `spool.layout` counts for it, the oldest samples give theirs back when pages are wanted,
and a sequence too long for a sample loses its front by whole pages, as in `spool.running`. Left out: pages that
requests with a common beginning share, and the pages of an answer while it is being written. `WrittenRing` has every
sample written by the real writer too.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import SampleInfo, split_of
from tide_cli.spool.writer import SpoolWriter


@dataclass(frozen=True)
class Stored:
    """A sample. tokens: rows; generated: rows of the answer; first: position of its first row."""

    id: int
    created: float
    tokens: int
    generated: int
    first: int
    pages: int
    split: str
    domain: int


class Ring:
    """Pages in all and free; samples, oldest first; tokens: rows stored since the beginning."""

    def __init__(self, layout: RowLayout, size_bytes: int, max_sample_tokens: int, held_out_share: float) -> None:
        self.layout, self._max, self._share = layout, max_sample_tokens, held_out_share
        self.pages = self.free = layout.pages_in(size_bytes)
        self.samples: deque[Stored] = deque()
        self.tokens = self.stored = self.dropped = 0
        self._held: dict[int, tuple[int, int]] = {}  # request -> (position of its first row, pages)

    @property
    def fill(self) -> float:
        """Part of the pages in use."""
        return 1 - self.free / self.pages if self.pages else 0.0

    def begin(self, number: int, prompt_tokens: int) -> None:
        """The prompt of a request has been computed."""
        first = self._first(prompt_tokens)
        pages = len(self.layout.page_numbers(first, prompt_tokens - first))
        if self._take(pages):
            self._held[number] = first, pages
        else:
            self.dropped += 1

    def finish(self, number: int, prompt_tokens: int, output_tokens: int, at: float, domain: int = 0) -> bool:
        """Its answer is whole; the last token has no row. Whether there is a sample of it."""
        if number not in self._held:
            return False
        first, pages = self._held.pop(number)
        end = prompt_tokens + output_tokens - 1
        if output_tokens < 2:
            self.free += pages
            self.dropped += 1
            return False
        last = max(first, self._first(end))
        self.free += (gone := last // self.layout.page_tokens - first // self.layout.page_tokens)
        wanted = len(self.layout.page_numbers(last, end - last))
        if not self._take(wanted - (pages - gone)):
            self.free += pages - gone
            self.dropped += 1
            return False
        self.stored += 1
        generated = end - max(last, prompt_tokens)
        split = split_of(self.stored, self._share)
        self.samples.append(Stored(self.stored, at, end - last, generated, last, wanted, split, domain))
        self.tokens += end - last
        return True

    def expire(self, before: float) -> bool:
        """Gives up the samples that were created before a moment; whether there were any."""
        held = len(self.samples)
        while self.samples and self.samples[0].created < before:
            self.free += self.samples.popleft().pages
        return len(self.samples) < held

    def newest(self, split: str, count: int) -> list[Stored]:
        """The newest samples of a split, newest first."""
        found: list[Stored] = []
        for sample in reversed(self.samples):
            if len(found) == count:
                break
            if sample.split == split:
                found.append(sample)
        return found

    def oldest_age(self, now: float) -> float | None:
        """Seconds; None while it holds nothing."""
        return now - self.samples[0].created if self.samples else None

    def _first(self, end: int) -> int:
        """Position of the first row that a sequence of so many keeps."""
        if end <= self._max:
            return 0
        pages = self.layout.pages_for
        lowest = max(pages(end) - pages(self._max), pages(end - self._max))
        return lowest * self.layout.page_tokens

    def _take(self, count: int) -> bool:
        while self.free < count:
            if not self.samples:
                return False
            self.free += self.samples.popleft().pages
        self.free -= count
        return True


class WrittenRing(Ring):
    """A ring whose rows are written through the real writer into `folder`, as many bytes as on the real machine."""

    def __init__(
        self, folder: Path, layout: RowLayout, size_bytes: int, max_sample_tokens: int, held_out_share: float
    ) -> None:
        """TideError where the folder cannot hold it."""
        super().__init__(layout, size_bytes, max_sample_tokens, held_out_share)
        self._folder = folder
        self._writer = SpoolWriter.open(
            folder,
            layout,
            size_bytes,
            run="simulated",
            max_sample_tokens=max_sample_tokens,
            held_out_share=held_out_share,
        )
        # any rows do: what is stored is not looked at
        self._aux = np.zeros((max_sample_tokens, 3 * layout.hidden_size), np.uint16)
        self._final = np.zeros((max_sample_tokens, layout.hidden_size), np.uint16)
        self.written = 0  # bytes of rows

    def begin(self, number: int, prompt_tokens: int) -> None:
        super().begin(number, prompt_tokens)
        self._put(number, 0, prompt_tokens)

    def finish(self, number: int, prompt_tokens: int, output_tokens: int, at: float, domain: int = 0) -> bool:
        rid, end = str(number), prompt_tokens + output_tokens - 1
        self._put(number, prompt_tokens, end)
        done = super().finish(number, prompt_tokens, output_tokens, at, domain)
        # the first token tells requests apart, so that none takes over another's prefix
        tokens = np.zeros(end + 1, np.int32)
        tokens[0] = number + 1
        origin = SampleInfo(0, "", 0, at, 0, 0, 0, 0, 0, split_of(self.stored, self._share), 0, ())
        figures = {"draft_version": 0, "verify_steps": 1, "accepted_tokens": 0}
        self._writer.finish(rid, tokens.tolist(), prompt_tokens, domain=str(domain), origin=origin, **figures)
        return done

    def expire(self, before: float) -> bool:
        """As there; what the samples leave in the files is overwritten."""
        gone = super().expire(before)
        if gone:
            self._writer.erase(lambda _, created: created < before)
        return gone

    def agrees(self) -> bool:
        """Whether the files hold the samples that the arithmetic says, each with its rows and pages."""
        with closing(SpoolReader.open(self._folder)) as reader:
            found = [
                (info.id, info.tokens, info.prefix_missing, len(info.pages)) for info in reversed(reader.samples())
            ]
        return found == [(one.id, one.tokens, one.first, one.pages) for one in self.samples]

    def close(self) -> None:
        self._writer.close()

    def _put(self, number: int, start: int, end: int) -> None:
        for at in range(start, end, len(self._aux)):
            count = min(len(self._aux), end - at)
            self._writer.put_rows(str(number), at, self._aux[:count], self._final[:count])
            self.written += count * 8 * self.layout.hidden_size
