"""The writing end of the spool. It runs inside the engine, on a thread of its own, and must never hold it up."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tide_cli.spool.folder import open_ring, unusable
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.layout import PAGE_ENTRY, RowLayout, row_runs
from tide_cli.spool.recovery import reconcile
from tide_cli.spool.ring import Ring, checksum, page_entry
from tide_cli.spool.samples import SampleInfo, split_of


@dataclass
class _Request:
    """A request that still runs: rows of positions first … end-1 lie in `pages`, the first one in the first slot."""

    first: int
    end: int
    pages: list[int] = field(default_factory=list)


class SpoolWriter:
    """Takes rows of running requests and turns finished ones into samples.

    One writer per folder, one thread at a time. Whatever cannot be stored is dropped and counted under
    `dropped_<cause>`: ring_full (running requests fill the ring), gap (rows are missing in the middle), empty (no
    rows), no_output (no row of a generated token), index (the index could not be written), aborted.
    """

    def __init__(
        self,
        ring: Ring,
        index: SpoolIndex,
        lock: int,
        *,
        run: str,
        max_sample_tokens: int,
        held_out_share: float,
    ) -> None:
        self._ring, self._index = ring, index
        self._lock: int | None = lock
        self._run, self._max_tokens, self._held_out_share = run, max_sample_tokens, held_out_share
        # tensors over the mapped regions: copy_ into them also rounds float32 to bfloat16
        self._aux = torch.from_numpy(ring.aux).view(torch.bfloat16)
        self._final = torch.from_numpy(ring.final).view(torch.bfloat16)
        samples, self._totals = reconcile(ring, index)
        self._finished = deque((info.id, info.pages) for info in samples)
        self._free = deque(np.flatnonzero(ring.table["owner"] == 0).tolist())
        self._evicted: list[int] = []  # gone from the ring, not yet from the index
        self._running: dict[str, _Request] = {}
        self._refused: set[str] = set()

    @classmethod
    def open(
        cls,
        folder: Path,
        layout: RowLayout,
        size_bytes: int,
        *,
        run: str,
        max_sample_tokens: int,
        held_out_share: float,
    ) -> SpoolWriter:
        """The spool in `folder`, continued where it has one of this layout, else made with at most `size_bytes`.

        An existing ring keeps its size, whatever `size_bytes` says; `size_bytes` of the writer tells it.
        max_sample_tokens: rows a sample keeps at most; a longer one keeps its last ones, for they carry the loss.
        TideError: another layout, another writer, a damaged ring, no room on the disk, a folder that cannot be used.
        """
        if max_sample_tokens < layout.page_tokens:
            raise ValueError(
                f"max_sample_tokens must be at least a page ({layout.page_tokens}), not {max_sample_tokens}"
            )
        if len(run.encode()) > PAGE_ENTRY["run"].itemsize:
            raise ValueError(f"run id {run!r} is longer than {PAGE_ENTRY['run'].itemsize} bytes")
        ring, lock = open_ring(folder, layout, size_bytes, max_sample_tokens)
        try:
            index = SpoolIndex.create(folder)
            return cls(ring, index, lock, run=run, max_sample_tokens=max_sample_tokens, held_out_share=held_out_share)
        except BaseException as error:
            os.close(lock)
            if isinstance(error, OSError | sqlite3.Error):
                raise unusable(folder, getattr(error, "strerror", None) or str(error)) from None
            raise

    @property
    def size_bytes(self) -> int:
        """Bytes of the ring's file."""
        return self._ring.size_bytes

    def put_rows(self, rid: str, start: int, aux: Tensor, final: Tensor) -> None:
        """Stores the states of positions start … start+k-1 of a running request.

        aux [k, 3H], final [k, H], on the CPU, bfloat16 or float32 (rounded). The first call's start is the sample's
        `prefix_missing`. A start before the end of what is there rewrites from that position on: what came after is
        forgotten. ValueError for wrong shapes; lack of room drops the request and is counted.
        """
        count, hidden = len(aux), self._ring.layout.hidden_size
        if start < 0 or aux.shape != (count, 3 * hidden) or final.shape != (count, hidden):
            raise ValueError(f"rows {tuple(aux.shape)} and {tuple(final.shape)} from {start} on do not fit the ring")
        if rid in self._refused or not count:
            return
        request = self._running.get(rid)
        if request is None:
            request = self._running[rid] = _Request(start, start)
        elif start < request.first:  # computed again from further back: everything follows once more
            request.first = request.end = start
        elif start > request.end:
            self.refuse(rid, "gap")
            return
        self._slide(request, start + count)
        missing = self._ring.layout.pages_for(start + count - request.first) - len(request.pages)
        if missing > 0:
            pages = self._allocate(missing)
            if pages is None:
                self.refuse(rid, "ring_full")
                return
            request.pages += pages
        if request.first > start:  # longer than a whole sample: its front has no place
            aux, final, start = aux[request.first - start :], final[request.first - start :], request.first
        self._copy(request, start, aux, final)
        request.end = start + len(aux)

    def finish(
        self,
        rid: str,
        tokens: Sequence[int],
        prompt_tokens: int,
        *,
        draft_version: int,
        verify_steps: int,
        accepted_tokens: int,
        origin: SampleInfo | None = None,
    ) -> int | None:
        """Turns a running request into a sample that readers see, all at once. Returns its id, None when dropped.

        tokens: prompt and output, from position 0. Rows beyond them are ignored; tokens without a row at the end (the
        last generated one has none) are cut off. origin: of an imported sample, which keeps its run, time and split.
        """
        if rid in self._refused:
            self._refused.discard(rid)
            self._commit([])
            return None
        request = self._running.pop(rid, None) or _Request(0, 0)
        end = min(request.end, len(tokens))
        if end <= max(request.first, prompt_tokens):
            self._free.extend(request.pages)
            self._drop("empty" if end <= request.first else "no_output")
            self._commit([])
            return None

        count = end - request.first
        needed = self._ring.layout.pages_for(count)
        self._free.extend(request.pages[needed:])
        sample_id = self._totals["samples"] + 1
        info = SampleInfo(
            id=sample_id,
            run=self._run,
            draft_version=draft_version,
            created=time.time(),
            tokens=count,
            prompt_tokens=prompt_tokens,
            prefix_missing=request.first,
            verify_steps=verify_steps,
            accepted=accepted_tokens,
            split=split_of(sample_id, self._held_out_share),
            checksum=0,
            pages=tuple(request.pages[:needed]),
        )
        if origin is not None:
            info = replace(info, run=origin.run, created=origin.created, split=origin.split)
        info = self._seal(info, np.asarray(tokens[request.first : end], "<i4"))
        if not self._commit([info]):
            self._ring.table["owner"][list(info.pages)] = 0
            self._free.extend(info.pages)
            self._drop("index")
            return None
        self._finished.append((info.id, info.pages))
        return info.id

    def abort(self, rid: str) -> None:
        """Forgets a running request and gives its pages back; an unknown one is nothing to forget."""
        if rid in self._running:
            self.refuse(rid, "aborted")
        self._refused.discard(rid)

    def refuse(self, rid: str, cause: str) -> None:
        """Gives the request's pages back, counts it under `dropped_<cause>` and ignores its rows until it ends."""
        if rid not in self._refused:
            request = self._running.pop(rid, None)
            self._free.extend(request.pages if request else [])
            self._refused.add(rid)
            self._drop(cause)

    def counters(self) -> dict[str, int]:
        """Totals since the spool was made: samples, tokens, dropped_<cause>."""
        return dict(self._totals)

    def close(self) -> None:
        """Writes the counters and lets the folder go; requests that still run are forgotten."""
        if self._lock is None:
            return
        self._commit([])
        self._index.close()
        del self._aux, self._final
        self._ring.close()
        os.close(self._lock)
        self._lock = None

    def _slide(self, request: _Request, end: int) -> None:
        """Gives whole pages back from the front until positions up to `end` fit the longest sample allowed."""
        excess = end - request.first - self._max_tokens
        if excess > 0:
            pages = self._ring.layout.pages_for(excess)
            self._free.extend(request.pages[:pages])
            del request.pages[:pages]
            request.first += pages * self._ring.layout.page_tokens

    def _allocate(self, count: int) -> list[int] | None:
        """Free pages, taken from the oldest finished samples where needed; None when running requests hold them."""
        while len(self._free) < count and self._finished:
            sample_id, pages = self._finished.popleft()
            # before anything is overwritten: a reader that copies these rows looks at the owner afterwards
            self._ring.table["owner"][list(pages)] = 0
            self._free.extend(pages)
            self._evicted.append(sample_id)
        if len(self._free) < count:
            return None
        return [self._free.popleft() for _ in range(count)]

    def _copy(self, request: _Request, start: int, aux: Tensor, final: Tensor) -> None:
        ring = self._ring
        for row, offset, length in row_runs(request.pages, ring.layout.page_tokens, start - request.first, len(aux)):
            stop, there = row + length, offset + length
            self._aux[row:stop].copy_(aux[offset:there])
            self._final[row:stop].copy_(final[offset:there])
            # while the rows are still in the processor's cache
            ring.checks[row:stop] = ring.sum_rows(row, stop)

    def _seal(self, info: SampleInfo, tokens: np.ndarray) -> SampleInfo:
        """Writes token ids and page entries; the owner comes last, it makes the pages a sample."""
        ring, pages = self._ring, np.array(info.pages)
        slots = np.arange(ring.layout.page_tokens)
        rows = (pages[:, None] * ring.layout.page_tokens + slots).ravel()[: info.tokens]
        ring.tokens[rows] = tokens
        info = replace(info, checksum=checksum(info, tokens, ring.checks[rows]))
        entries = np.repeat(page_entry(info), len(pages))
        entries["ordinal"], entries["checksum"], entries["owner"] = np.arange(len(pages)), info.checksum, 0
        ring.table[pages] = entries
        ring.table["owner"][pages] = info.id
        return info

    def _drop(self, cause: str) -> None:
        self._totals[f"dropped_{cause}"] = self._totals.get(f"dropped_{cause}", 0) + 1

    def _commit(self, added: list[SampleInfo]) -> bool:
        """Brings the index up to date; what fails now (a full disk) is tried again with the next request's end."""
        totals = dict(self._totals)
        totals["samples"] += len(added)
        totals["tokens"] += sum(info.tokens for info in added)
        try:
            self._index.commit(added, self._evicted, totals)
        except sqlite3.Error:
            return False
        self._totals = totals
        self._evicted.clear()
        return True
