"""Finding the finished samples from the page table alone, and bringing the index in line with it."""

from __future__ import annotations

import numpy as np

from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.ring import Ring
from tide_cli.spool.samples import SampleInfo


def scan(ring: Ring) -> list[SampleInfo]:
    """Every complete sample of the page table, oldest first.

    A sample is complete when all its pages name it as owner, agree on its figures and have the ordinals 0 … n-1.
    Rows are not read: their checksum is verified by whoever reads the sample.
    """
    used = np.flatnonzero(ring.table["owner"])
    order = used[np.lexsort((ring.table["ordinal"][used], ring.table["owner"][used]))]
    borders = np.flatnonzero(np.diff(ring.table["owner"][order])) + 1
    found = [_sample(ring, pages) for pages in np.split(order, borders) if len(pages)]
    return [info for info in found if info is not None]


def _sample(ring: Ring, pages: np.ndarray) -> SampleInfo | None:
    """The sample that owns `pages` (in order of their ordinals), None when it is not whole."""
    entries = ring.table[pages]
    first = entries[0]
    count, tokens = int(first["page_count"]), int(first["tokens"])
    # the length first: a damaged count must not size an array
    if len(pages) != count or not np.array_equal(entries["ordinal"], np.arange(count)):
        return None
    entries["ordinal"] = 0
    if (entries != entries[0]).any() or not tokens or ring.layout.pages_for(tokens) != count:
        return None
    try:
        run = bytes(first["run"]).decode()
    except UnicodeDecodeError:
        return None
    return SampleInfo(
        id=int(first["owner"]),
        run=run,
        draft_version=int(first["draft_version"]),
        created=float(first["created"]),
        tokens=tokens,
        prompt_tokens=int(first["prompt_tokens"]),
        prefix_missing=int(first["prefix_missing"]),
        verify_steps=int(first["verify_steps"]),
        accepted=int(first["accepted"]),
        split="held_out" if first["held_out"] else "train",
        checksum=int(first["checksum"]),
        pages=tuple(pages.tolist()),
    )


def reconcile(ring: Ring, index: SpoolIndex) -> tuple[list[SampleInfo], dict[str, int]]:
    """Makes the index say what the page table says, and frees the pages of samples that were never finished.

    For the ring's owner, before it writes. A process that was killed may have left a sample in the ring but not in
    the index (it is taken up), pages of requests that ran (they are freed), and index rows of samples whose pages
    were already given back (they are deleted). Returns the samples, oldest first, and the counters.
    """
    samples = scan(ring)
    kept = np.zeros(ring.pages, bool)
    for info in samples:
        kept[list(info.pages)] = True
    ring.table["owner"][~kept] = 0

    known = {info.id: info for info in index.samples()}
    present = {info.id: info for info in samples}
    added = [info for info in samples if known.get(info.id) != info]
    removed = [sample for sample, info in known.items() if present.get(sample) != info]
    totals = {"samples": 0, "tokens": 0} | index.totals()
    highest = max([totals["samples"], *present, *known])
    # ids count the samples: one above the total was finished, but its transaction did not get through
    totals["tokens"] += sum(info.tokens for info in added if info.id > totals["samples"])
    totals["samples"] = highest
    index.commit(added, removed, totals)
    return samples, totals
