"""Which page of the ring holds the states of which tokens behind which prefix.

A row depends on the tokens up to its own, so two sequences with a common beginning have the same rows there. The whole
pages of a sequence make a chain of digests, each over the digest before it and the page's tokens. A page is known by
the digest before it (its parent) and its own tokens, and, when it is full, by its own digest.

Only pages filled by this process are in the map: the engine's prefix cache, whose hits are looked up here, begins
empty, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

ROOT = b""  # the parent of a sequence's first page

# Of the pages behind one parent the newest are looked through: thousands of requests may share a system prompt.
_SIBLINGS = 1024


def extend_chain(digests: list[bytes], tokens: np.ndarray, page_tokens: int) -> None:
    """Adds the digests of the whole pages of `tokens` (int32, from position 0) that are not in the list yet."""
    size, known = 4 * page_tokens, len(digests)
    data = tokens[known * page_tokens :].astype("<i4", copy=False).tobytes()
    digest = digests[-1] if digests else ROOT
    for start in range(0, len(data) - size + 1, size):
        digest = hashlib.blake2b(digest + data[start : start + size], digest_size=16).digest()
        digests.append(digest)


class PrefixMap:
    """tokens: the ring's token ids, [N, P]; the map compares with what stands there."""

    def __init__(self, tokens: np.ndarray) -> None:
        self._tokens = tokens
        self._filled = np.zeros(len(tokens), np.int32)  # slots of each page that may be looked up
        self._first = np.zeros(len(tokens), np.int64)
        self._names: dict[int, tuple[bytes, bytes | None]] = {}
        self._full: dict[bytes, int] = {}
        self._behind: dict[bytes, list[int]] = {}

    def add(
        self,
        pages: Sequence[int],
        parents: Sequence[bytes],
        digests: Sequence[bytes | None],
        filled: int,
        first: int,
    ) -> None:
        """Neighbouring pages of a sequence, full but for the last one, of which the first `filled` slots hold rows.

        digests: None for a page that is not full. first: position from which on the sequence has rows. Of two pages
        with one digest the newer one is found, unless it has fewer rows before it. What was known of the pages before
        is forgotten.
        """
        at = np.array(pages, np.intp)
        self._filled[at], self._first[at] = self._tokens.shape[1], first
        self._filled[at[-1:]] = filled
        for page, parent, digest in zip(pages, parents, digests, strict=True):
            if page in self._names:
                self.remove(page)
            self._names[page] = (parent, digest)
            siblings = self._behind.get(parent)
            if siblings is None:
                self._behind[parent] = [page]
            else:
                siblings.append(page)
            if digest is not None:
                known = self._full.get(digest)
                if known is None or first <= self._first[known]:
                    self._full[digest] = page

    def remove(self, page: int) -> None:
        """Forgets the page; one that is not in the map is nothing to forget."""
        name = self._names.pop(page, None)
        if name is None:
            return
        parent, digest = name
        siblings = self._behind[parent]
        siblings.remove(page)
        if not siblings:
            del self._behind[parent]
        if digest is not None and self._full.get(digest) == page:
            del self._full[digest]

    def full(self, digest: bytes) -> int | None:
        """The page of this digest."""
        return self._full.get(digest)

    def beginning(self, parent: bytes, tokens: np.ndarray) -> int | None:
        """A page behind `parent` whose first slots hold `tokens`, one to P of them."""
        siblings = np.array(self._behind.get(parent, ())[: -_SIBLINGS - 1 : -1], np.intp)
        good = (self._filled[siblings] >= len(tokens)) & (self._tokens[siblings, : len(tokens)] == tokens).all(axis=1)
        found = siblings[good]
        return int(found[0]) if len(found) else None
