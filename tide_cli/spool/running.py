"""Requests that still run: their rows are put together page by page, with what earlier requests have left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tide_cli.spool.layout import row_runs
from tide_cli.spool.pages import Pages
from tide_cli.spool.prefixes import ROOT, extend_chain
from tide_cli.spool.ring import Ring, row_sums

_NO_TOKENS = np.empty(0, np.int32)
# a block of rows is copied and summed before the next one: small enough to stay in the processor's cache
_BLOCK_BYTES = 2**20


class RingFull(Exception):
    """Running requests hold all pages."""


class Part(NamedTuple):
    """One request's rows in a forward: `length` of them from row `offset` on, for positions start, start+1, …

    tokens: in a prefill the ids known so far, int32 or a list, from position 0 at least to the end of the part.
    """

    rid: str
    start: int
    offset: int
    length: int
    tokens: Sequence[int] | np.ndarray | None = None


@dataclass
class Request:
    """Rows of the positions first … end-1 lie in `pages`, the row of position p in slot p % P.

    adopted: leading pages that other requests filled. sealed: leading pages that will never be written again, adopted
    or not. tokens: ids known so far, from position 0; digests: of their whole pages, as far as they are named; named:
    positions below this one are in the prefix map. reused_to: rows below this position were taken over.
    """

    first: int
    end: int
    pages: list[int] = field(default_factory=list)
    adopted: int = 0
    sealed: int = 0
    tokens: np.ndarray = field(default_factory=lambda: _NO_TOKENS)
    digests: list[bytes] = field(default_factory=list)
    named: int = 0
    reused_to: int = 0
    cut: int = 0


class Builder:
    """Places, takes over, rewinds and names the rows of running requests in one ring.

    The check of a row is written before its states: by it erasing finds what a killed process has left.
    max_tokens: rows kept of a request at most, its last ones.
    """

    def __init__(self, ring: Ring, pages: Pages, max_tokens: int) -> None:
        self._ring, self._pages, self._max_tokens = ring, pages, max_tokens
        self._size = ring.layout.page_tokens
        self._block = max(1, _BLOCK_BYTES // (8 * ring.layout.hidden_size))

    def begin(self, start: int, tokens: np.ndarray) -> Request:
        """A request whose first own row is that of position `start`, with the rows before it as far as they are found.

        tokens: ids known, int32, those of the prefix at least if anything is to be found. RingFull.
        """
        request = Request(start, start, tokens=tokens)
        if 0 < start <= len(tokens):
            self._adopt(request)
        return request

    def extend(self, request: Request, aux: np.ndarray, final: np.ndarray, checks: np.ndarray | None) -> None:
        """The next rows: aux [k, 3H], final [k, H] uint16; checks [k] where they are known already. RingFull."""
        start, end, slot = request.end, request.end + len(aux), request.end % self._size
        within = request.pages and slot and slot + len(aux) <= self._size and end - request.first <= self._max_tokens
        if within and checks is not None and request.named >= len(request.tokens):  # most decode steps: a page goes on
            rows = slice(request.pages[-1] * self._size + slot, request.pages[-1] * self._size + slot + len(aux))
            self._ring.checks[rows], self._ring.aux[rows], self._ring.final[rows] = checks, aux, final
            request.end = end
            return
        self._slide(request, end)
        missing = self._ring.layout.pages_for(end) - request.first // self._size - len(request.pages)
        if missing > 0:
            request.pages += self._take(missing)
        skipped = max(0, request.first - start)  # longer than a whole sample: its front has no place
        checks = None if checks is None else checks[skipped:]
        self._copy(request, start + skipped, aux[skipped:], final[skipped:], checks)
        request.end = end
        if request.named < min(end, len(request.tokens)):
            self._name_prompt(request)

    def rewind(self, request: Request, end: int) -> None:
        """Forgets the rows from position `end` on, which is one of the request's. RingFull leaves it as it was."""
        keep, slots = divmod(end - request.first // self._size * self._size, self._size)
        if slots and keep < request.sealed:  # others may read the rest of this page
            (page,) = self._take(1)
            self._copy_within(request.pages[keep], page, self._front(request, keep), slots)
            self._pages.release(request.pages[keep:])
            request.pages[keep:] = [page]
        else:
            kept = keep + (slots > 0)
            self._pages.release(request.pages[kept:])
            del request.pages[kept:]
            if slots:
                self._pages.prefixes.remove(request.pages[keep])
        request.end = end
        request.adopted, request.sealed = min(request.adopted, keep), min(request.sealed, keep)
        request.tokens = request.tokens[:end]
        del request.digests[end // self._size :]
        request.named, request.reused_to = min(request.named, end), min(request.reused_to, end)

    def complete(self, request: Request, tokens: np.ndarray) -> None:
        """Seals and names every page of a request that has ended. tokens [request.end] int32: from position 0."""
        request.tokens = tokens
        extend_chain(request.digests, tokens, self._size)
        self._seal(request, len(request.pages))

    def clear_unused(self, request: Request) -> None:
        """Overwrites what earlier requests have left in the request's own pages, where it has no row or token yet."""
        ring, own, base = self._ring, request.pages[request.sealed :], request.first // self._size
        positions = (base + request.sealed) * self._size + np.arange(len(own) * self._size)
        rows = ring.rows_of(own, 0, len(positions))
        ring.clear(rows[(positions < request.first) | (positions >= request.end)])
        named = request.first if self._front(request, request.sealed) else request.named
        ring.tokens[rows[positions >= named]] = 0

    def _adopt(self, request: Request) -> None:
        """Holds the pages of the request's prefix; the rows of a page that goes on differently are copied."""
        names, tokens = self._pages.prefixes, request.tokens
        whole, slots = divmod(request.end, self._size)
        extend_chain(request.digests, tokens[: request.end], self._size)
        parent = request.digests[whole - 1] if whole else ROOT
        source = names.beginning(parent, tokens[request.end - slots : request.end]) if slots else None
        if slots and source is None:
            return
        chain: list[int] = []
        page = names.full(parent) if whole else None
        while page is not None and page not in self._pages.empty_front:
            chain.append(page)
            page = self._pages.previous(page) if len(chain) < whole else None
        if page is not None:  # a sequence begins in the middle of this page
            chain.append(page)
        first = (whole - len(chain)) * self._size + self._pages.empty_front.get(chain[-1] if chain else -1, 0)
        chain.reverse()
        held = [*chain, *([source] if source is not None else [])]
        self._pages.hold(held)
        request.pages = chain
        request.adopted = request.sealed = len(chain)
        request.first, request.reused_to, request.named = first, request.end, whole * self._size
        if source is None:
            return
        try:
            (page,) = self._take(1)
        except RingFull:
            self._pages.release(chain)
            raise
        else:
            self._copy_within(source, page, 0, slots)
            request.pages.append(page)
        finally:
            self._pages.release([source])

    def _slide(self, request: Request, end: int) -> None:
        """Gives whole pages back from the front until positions up to `end` fit the longest sample allowed."""
        room = self._ring.layout.pages_for(self._max_tokens)
        lowest = self._ring.layout.pages_for(end) - room
        if end - request.first > self._max_tokens:
            lowest = max(lowest, self._ring.layout.pages_for(end - self._max_tokens))
        gone = lowest - request.first // self._size
        if gone <= 0:
            return
        self._pages.release(request.pages[:gone])
        del request.pages[:gone]
        request.adopted, request.sealed = max(0, request.adopted - gone), max(0, request.sealed - gone)
        request.cut += lowest * self._size - request.first
        request.first = lowest * self._size

    def _take(self, count: int) -> list[int]:
        pages = self._pages.take(count)
        if pages is None:
            raise RingFull
        return pages

    def _copy(
        self, request: Request, start: int, aux: np.ndarray, final: np.ndarray, checks: np.ndarray | None
    ) -> None:
        ring, block = self._ring, self._block
        pages = request.pages[start // self._size - request.first // self._size :]
        if checks is not None and len(aux) <= self._size:  # a decode step, in two pages at most
            for row, source, length in row_runs(pages, self._size, start % self._size, len(aux)):
                into, of = slice(row, row + length), slice(source, source + length)
                ring.checks[into], ring.aux[into], ring.final[into] = checks[of], aux[of], final[of]
            return
        rows = ring.rows_of(
            pages, start, len(aux)
        )  # at once, for pages that were given out often are seldom neighbours
        for done in range(0, len(aux), block):
            there, here = rows[done : done + block], slice(done, done + block)
            ring.checks[there] = row_sums(aux[here], final[here]) if checks is None else checks[here]
            ring.aux[there], ring.final[there] = aux[here], final[here]

    def _copy_within(self, source: int, page: int, first: int, stop: int) -> None:
        """Slots first … stop-1 of one page into another one."""
        there = slice(page * self._size + first, page * self._size + stop)
        here = slice(source * self._size + first, source * self._size + stop)
        for region in (self._ring.tokens, self._ring.checks, self._ring.aux, self._ring.final):
            region[there] = region[here]

    def _name_prompt(self, request: Request) -> None:
        """Makes the rows whose tokens are known findable: the engine's prefix cache hits running requests, too."""
        known, base = min(request.end, len(request.tokens)), request.first // self._size
        whole, slots = divmod(known, self._size)
        extend_chain(request.digests, request.tokens[:known], self._size)
        while request.sealed < whole - base and self._join(request):
            pass
        self._seal(request, whole - base)
        if slots and whole >= base and not self._front(request, whole - base):
            page = request.pages[whole - base]
            row = page * self._size
            self._ring.tokens[row : row + slots] = request.tokens[known - slots : known]
            parent = request.digests[-1] if whole else ROOT
            self._pages.prefixes.add([page], [parent], [None], slots, request.first)
        request.named = known

    def _join(self, request: Request) -> bool:
        """Holds a page of the same prefix instead of the request's next own one, where one is there: two requests have
        computed the same at the same time."""
        index, pages = request.adopted, request.pages
        if request.sealed > index or self._front(request, index):
            return False
        twin = self._pages.prefixes.full(request.digests[request.first // self._size + index])
        if twin is None or (index and self._pages.previous(twin) != pages[index - 1]):
            return False
        self._pages.hold([twin])
        self._pages.release([pages[index]])
        pages[index] = twin
        request.adopted = request.sealed = index + 1
        return True

    def _seal(self, request: Request, stop: int) -> None:
        """Writes the tokens of the request's pages below index `stop`, clears what earlier requests have left beside
        them, gives the pages their generation, and names them."""
        start, base = request.sealed, request.first // self._size
        if start >= stop:
            return
        pages, first = request.pages[start:stop], max(request.first, (base + start) * self._size)
        tokens = request.tokens[first : (base + stop) * self._size]
        self._ring.tokens[self._ring.rows_of(pages, first, len(tokens))] = tokens
        filled, front = (first + len(tokens) - 1) % self._size + 1, self._front(request, start)
        if front:
            self._ring.clear(pages[0] * self._size + np.arange(front))
        if filled < self._size:
            self._ring.clear(pages[-1] * self._size + np.arange(filled, self._size))
        self._pages.seal(pages, base + start, request.pages[start - 1] if start else None)
        request.sealed = stop
        if front:
            self._pages.empty_front[pages[0]] = front
            start += 1
        parents = [ROOT, *request.digests][base + start : base + stop]
        digests: list[bytes | None] = [*request.digests[base + start : base + stop], None][: len(parents)]
        self._pages.prefixes.add(request.pages[start:stop], parents, digests, filled, request.first)

    def _front(self, request: Request, index: int) -> int:
        """Slots without a row at the front of the request's page `index`."""
        return request.first % self._size if index == 0 else 0
