"""The finished samples of a ring, oldest first: naming them, and giving them up."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable

from tide_cli.spool.erase import Erased
from tide_cli.spool.pages import Pages
from tide_cli.spool.ring import Ring, sample_figures
from tide_cli.spool.samples import SampleInfo


class Finished:
    """Holds every sample's pages, and gives the oldest sample up where pages are wanted.

    pages: of the whole ring. gone: ids of samples that are no longer in the ring; whoever keeps an index clears it.
    """

    def __init__(self, ring: Ring, samples: Iterable[SampleInfo]) -> None:
        """samples: what the ring holds, oldest first."""
        self._ring = ring
        self._samples = OrderedDict((info.id, (info.created, info.pages)) for info in samples)
        self._sort_by_age()
        self.gone: list[int] = []
        self.pages = Pages(ring, (pages for _, pages in self._samples.values()), self._evict_oldest)

    def add(self, info: SampleInfo) -> None:
        """Makes a sample of sealed pages, which the caller holds and hands over."""
        table, last = self._ring.table, info.pages[-1]
        for name, value in sample_figures(info).items():
            table[name][last] = value
        table["owner"][last] = info.id  # last: this makes the pages a sample
        self._samples[info.id] = (info.created, info.pages)
        heapq.heappush(self._by_age, (info.created, info.id))
        if len(self._by_age) > 2 * len(self._samples) + 64:  # most of them are gone
            self._sort_by_age()

    def give_up(self, sample: int, *, wipe: bool = False) -> None:
        """The sample is none any more, and its pages are free unless others hold them; wipe: when they are wiped."""
        _, pages = self._samples.pop(sample)
        # before any page is given back: whatever happens next, these pages are no sample any more
        self._ring.disown(pages[-1])
        self.pages.release(pages, wipe=wipe)
        self.gone.append(sample)

    def give_up_before(self, limit: float) -> None:
        """Gives up the samples created before this unix second; what they leave is to be wiped."""
        while self._by_age and self._by_age[0][0] < limit:
            created, sample = heapq.heappop(self._by_age)
            if sample in self._samples and self._samples[sample][0] == created:  # else evicted or erased
                self.give_up(sample, wipe=True)

    def erase(self, chosen: Callable[[int, float], bool]) -> Erased:
        """Gives up the samples of which `chosen` (id, created) is true; every page that nobody holds and in which
        anything stands is to be wiped."""
        samples = [sample for sample, (created, _) in self._samples.items() if chosen(sample, created)]
        self.pages.doom_leavings()
        held: set[int] = set()
        for sample in samples:
            held.update(self._samples[sample][1])
            self.give_up(sample, wipe=True)
        kept = sum(not self.pages.is_free(page) for page in held)
        doomed = self.pages.doomed
        return Erased(len(samples), doomed, kept, doomed * self._ring.layout.bytes_per_page, tuple(samples))

    def _sort_by_age(self) -> None:
        """A heap of its own: ids follow neither a clock that is set back nor the age of what was imported."""
        self._by_age = [(created, sample) for sample, (created, _) in self._samples.items()]
        heapq.heapify(self._by_age)

    def _evict_oldest(self) -> bool:
        if not self._samples:
            return False
        self.give_up(next(iter(self._samples)))
        return True
