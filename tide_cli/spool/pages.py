"""The pages of a ring as its writer sees them: free, held by requests and samples, or waiting to be wiped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tide_cli.spool.prefixes import PrefixMap
from tide_cli.spool.ring import Ring

_COUNT_BITS = 40  # of a generation; the bits above count the openings
_OPENINGS = 2**24


class Pages:
    """Gives pages out and takes them back when nobody holds them any more.

    evict: gives up the oldest sample; False when there is none. prefixes: where pages with known tokens are found.
    A page's generation is zeroed before the page can be given out again, and after the owner of a sample that ended in
    it: see layout.py.
    """

    def __init__(self, ring: Ring, held: Iterable[tuple[int, ...]], evict: Callable[[], bool]) -> None:
        """held: the pages of each finished sample. Takes the next opening's number."""
        self._ring, self._evict = ring, evict
        table = ring.table
        self._generation, self._ordinal = table["generation"], table["ordinal"]
        self._link_page, self._link_generation = table["link_page"], table["link_generation"]
        self.prefixes = PrefixMap(ring.tokens.reshape(ring.pages, -1))
        self._holders = [0] * ring.pages
        for pages in held:
            self.hold(pages)
        self._free = deque(page for page, holders in enumerate(self._holders) if not holders)
        self._doomed: deque[int] = deque()
        self._next_generation = _first_generation(ring)
        # slots without a row at the front of pages where a sequence begins
        self.empty_front: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Pages that hold nothing, those that wait to be wiped included."""
        return len(self._free) + len(self._doomed)

    @property
    def doomed(self) -> int:
        """Pages that wait to be wiped."""
        return len(self._doomed)

    def take(self, count: int) -> list[int] | None:
        """Pages for a request, from the oldest samples where none is free; None when running requests hold them."""
        while len(self._free) < count:
            if self._doomed:
                self.wipe(count - len(self._free))
            elif not self._evict():
                return None
        taken = [self._free.popleft() for _ in range(count)]
        self.hold(taken)
        return taken

    def hold(self, pages: Iterable[int]) -> None:
        """One more request or sample needs each of `pages`."""
        for page in pages:
            self._holders[page] += 1

    def release(self, pages: Iterable[int], *, wipe: bool = False) -> int:
        """One holder less for each of `pages`; those that nobody holds are free. wipe: when they have been wiped.

        Returns how many are free now.
        """
        left = []
        for page in pages:
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            self.prefixes.remove(page)
            self.empty_front.pop(page, None)
            left.append(page)
        # before anything is overwritten: a reader that copies these rows looks at the generation afterwards
        self._generation[np.array(left, np.intp)] = 0
        (self._doomed if wipe else self._free).extend(left)
        return len(left)

    def is_free(self, page: int) -> bool:
        """Whether nobody holds the page."""
        return not self._holders[page]

    def seal(self, pages: Sequence[int], ordinal: int, previous: int | None) -> None:
        """Gives neighbouring pages of a sequence their generations: from now on they never change.

        ordinal: of the first one. previous: the page before it, sealed.
        """
        at, count = np.array(pages, np.intp), len(pages)
        generations = np.arange(self._next_generation, self._next_generation + count, dtype=np.uint64)
        self._next_generation += count
        self._ordinal[at] = np.arange(ordinal, ordinal + count)
        self._link_page[at[1:]], self._link_generation[at[1:]] = at[:-1], generations[:-1]
        self._link_page[at[0]] = 0 if previous is None else previous
        self._link_generation[at[0]] = 0 if previous is None else self._generation[previous]
        self._generation[at] = generations

    def previous(self, page: int) -> int | None:
        """The page before a sealed one; None where the sequence begins with it or the page before is gone."""
        link, generation = int(self._link_page[page]), self._link_generation[page]
        return link if generation and self._generation[link] == generation else None

    def generations(self, pages: Iterable[int]) -> tuple[int, ...]:
        return tuple(self._generation[list(pages)].tolist())

    def doom_leavings(self) -> None:
        """Free pages with rows or tokens of whatever was there before are to be wiped, too."""
        free = np.array(self._free, np.intp)
        size = self._ring.layout.page_tokens
        tokens, checks = self._ring.tokens.reshape(-1, size), self._ring.checks.reshape(-1, size)
        used = tokens[free].any(axis=1) | checks[free].any(axis=1)
        self._free = deque(free[~used].tolist())
        self._doomed.extend(free[used].tolist())

    def wipe(self, count: int) -> int:
        """Overwrites up to `count` of the pages that wait for it with zeros. Returns how many it were."""
        count = min(count, len(self._doomed))
        ring, size = self._ring, self._ring.layout.page_tokens
        for _ in range(count):
            page = self._doomed.popleft()
            rows = slice(page * size, (page + 1) * size)
            ring.aux[rows] = ring.final[rows] = 0
            ring.table[page] = np.zeros((), ring.table.dtype)
            # last: by these a page that a kill left half wiped is found again
            ring.tokens[rows] = ring.checks[rows] = 0
            self._free.append(page)
        return count


def _first_generation(ring: Ring) -> int:
    """Counts this opening, and gives the first generation of it: above all of earlier openings."""
    opening = int(ring.openings[0]) % (_OPENINGS - 1) + 1
    ring.openings[0] = opening
    # only where the count was lost is anything of this opening there already
    known = ring.table["generation"][ring.table["generation"] >> _COUNT_BITS == opening]
    return max(opening << _COUNT_BITS, int(known.max(initial=0))) + 1
