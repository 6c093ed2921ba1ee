"""Which page of the ring holds the states of which tokens behind which prefix.

A row depends on the tokens up to its own, so two sequences with a common beginning have the same rows there. The whole
pages of a sequence make a chain of digests, each over the digest before it and the page's tokens. A page is known by
the digest before it (its parent) and its own tokens, and, when it is full, by its own digest.

Only pages filled by this process are in the map: the engine's prefix cache, whose hits are looked up here, begins
empty, too.
"""

from __future__ import annotations

import hashlib

import numpy as np

ROOT = b""  # the parent of a sequence's first page

# Of the pages behind one parent the newest are looked through: thousands of requests may share a system prompt.
_SIBLINGS = 1024


def page_digest(parent: bytes, tokens: np.ndarray) -> bytes:
    """The digest of a full page. tokens [P] int32."""
    return hashlib.blake2b(parent + tokens.astype("<i4").tobytes(), digest_size=16).digest()


class PrefixMap:
    """tokens: the ring's token ids, [N, P]; the map compares with what stands there."""

    def __init__(self, tokens: np.ndarray) -> None:
        self._tokens = tokens
        self._filled = np.zeros(len(tokens), np.int32)  # slots of each page that may be looked up
        self._first = np.zeros(len(tokens), np.int64)
        self._names: dict[int, tuple[bytes, bytes | None]] = {}
        self._full: dict[bytes, int] = {}
        self._behind: dict[bytes, list[int]] = {}

    def add(self, page: int, parent: bytes, filled: int, digest: bytes | None, first: int) -> None:
        """The first `filled` slots of the page hold rows behind `parent`. digest: of a full page.

        first: position from which on the page's sequence has rows. Of two pages with one digest the newer one is found,
        unless it has fewer rows before it. What was known of the page before is forgotten.
        """
        self.remove(page)
        self._names[page] = (parent, digest)
        self._filled[page], self._first[page] = filled, first
        self._behind.setdefault(parent, []).append(page)
        if digest is not None and first <= self._first[self._full.get(digest, page)]:
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
