"""Finding the finished samples from the page table alone, and bringing the index in line with it."""

from __future__ import annotations

import numpy as np

from tide_cli.spool.index import HIGHEST_ID, LATEST, SpoolIndex
from tide_cli.spool.ring import Ring
from tide_cli.spool.samples import SampleInfo


def scan(ring: Ring) -> list[SampleInfo]:
    """Every complete sample of the page table, oldest first.

    A sample is complete when the links from the page with its id lead through pages with the right generations and
    numbers to the page of its first row. Rows are not read: their checksum is verified by whoever reads the sample.
    """
    links = _Links(ring)
    found: dict[int, SampleInfo] = {}
    for page in np.flatnonzero(ring.table["owner"]).tolist():
        info = _sample(ring, links, page)
        if info is not None:
            found.setdefault(info.id, info)
    return sorted(found.values(), key=lambda info: info.id)


class _Links:
    """The page table's own part as lists: walking through them touches every page several times."""

    def __init__(self, ring: Ring) -> None:
        table = ring.table
        self.generation, self.ordinal = table["generation"].tolist(), table["ordinal"].tolist()
        self.page, self.page_generation = table["link_page"].tolist(), table["link_generation"].tolist()

    def back(self, page: int, numbers: range) -> list[int] | None:
        """The pages with these numbers, the last of which is `page`; None where one is missing or of another kind."""
        pages: list[int] = []
        for number in reversed(numbers):
            if page >= len(self.generation) or not self.generation[page] or self.ordinal[page] != number:
                return None
            if pages and self.generation[page] != self.page_generation[pages[-1]]:
                return None
            pages.append(page)
            page = self.page[page]
        return pages[::-1]


def _sample(ring: Ring, links: _Links, last: int) -> SampleInfo | None:
    """The sample that ends in the page `last`, None when it is not whole."""
    entry = ring.table[last]
    sample, tokens, first = int(entry["owner"]), int(entry["tokens"]), int(entry["prefix_missing"])
    numbers = ring.layout.page_numbers(first, tokens)
    # the length first: a damaged count must not size a list
    if not tokens or len(numbers) > ring.pages or sample > HIGHEST_ID or not 0 <= entry["created"] < LATEST:
        return None
    pages = links.back(last, numbers)
    try:
        run, domain = bytes(entry["run"]).decode(), bytes(entry["domain"]).decode()
    except UnicodeDecodeError:
        return None
    if pages is None:
        return None
    return SampleInfo(
        id=sample,
        run=run,
        draft_version=int(entry["draft_version"]),
        created=float(entry["created"]),
        tokens=tokens,
        prompt_tokens=int(entry["prompt_tokens"]),
        prefix_missing=first,
        verify_steps=int(entry["verify_steps"]),
        accepted=int(entry["accepted"]),
        split="held_out" if entry["held_out"] else "train",
        checksum=int(entry["checksum"]),
        pages=tuple(pages),
        generations=tuple(links.generation[page] for page in pages),
        cut=int(entry["cut"]),
        reused=int(entry["reused"]),
        domain=domain,
    )


def reconcile(ring: Ring, index: SpoolIndex) -> tuple[list[SampleInfo], dict[str, int]]:
    """Makes the index say what the page table says, and frees the pages that no finished sample holds.

    For the ring's owner, before it writes. A process that was killed may have left a sample in the ring but not in
    the index (it is taken up), pages of requests that ran (they are freed), and index rows of samples that were
    already given up (they are deleted). Slots of kept pages without a row are cleared, which a writer of an older
    version has not done. Returns the samples, oldest first, and the counters.
    """
    samples = scan(ring)
    kept, last, used = np.zeros(ring.pages, bool), np.zeros(ring.pages, bool), np.zeros(len(ring.tokens), bool)
    for info in samples:
        kept[list(info.pages)] = True
        last[info.pages[-1]] = True
        used[ring.rows_of(info.pages, info.prefix_missing, info.tokens)] = True
    ring.disown(~last)
    ring.table["generation"][~kept] = 0
    ring.clear(np.flatnonzero(np.repeat(kept, ring.layout.page_tokens) & ~used))

    known = {info.id: info for info in index.samples()}
    present = {info.id: info for info in samples}
    added = [info for info in samples if known.get(info.id) != info]
    removed = [sample for sample, info in known.items() if present.get(sample) != info]
    totals = {"samples": 0, "tokens": 0} | index.totals()
    if totals["samples"] > HIGHEST_ID:
        totals["samples"] = 0
    highest = max([totals["samples"], *present, *known])
    # ids count the samples: one above the total was finished, but its transaction did not get through
    totals["tokens"] += sum(info.tokens - info.reused for info in added if info.id > totals["samples"])
    totals["samples"] = highest
    index.commit(added, removed, totals)
    return samples, totals
