"""The writing end of the spool. It runs inside the engine, on a thread of its own, and must never hold it up.

No torch is imported here, so that the command line can open a spool for writing, too.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tide_cli.spool.erase import Erased
from tide_cli.spool.finished import Finished
from tide_cli.spool.folder import open_ring, unusable
from tide_cli.spool.layout import PAGE_ENTRY, RowLayout
from tide_cli.spool.ledger import Ledger
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, erase_expired
from tide_cli.spool.ring import Ring, row_sums, row_words
from tide_cli.spool.running import Builder, Part, Request, RingFull
from tide_cli.spool.samples import SampleInfo
from tide_cli.spool.sealing import Sealer

if TYPE_CHECKING:
    from tide_cli.spool.ring import States

# rows of one forward are summed together up to this many bytes; above it each block is summed when it is copied
_SUMMED_AT_ONCE = 2**19
# seconds between two searches for what evicted samples, and requests that made none, have left
_SWEEP_EVERY = 600.0


class SpoolWriter:
    """Takes rows of running requests and turns finished ones into samples.

    One writer per folder, one thread at a time. Whatever cannot be stored is dropped and counted under
    `dropped_<cause>`: ring_full (running requests fill the ring), gap (rows are missing in the middle), empty (no
    rows), no_output (no row of a generated token), tokens (other ones than the prefill had), index (the index could
    not be written), aborted. OSError from any call that writes rows: the ring's file is no longer whole.
    """

    def __init__(
        self,
        folder: Path,
        ring: Ring,
        lock: int,
        ledger: Ledger,
        finished: Finished,
        builder: Builder,
        sealer: Sealer,
    ) -> None:
        self._folder, self._ring = folder, ring
        self._lock: int | None = lock
        self._ledger, self._finished, self._builder, self._sealer = ledger, finished, builder, sealer
        self._pages = finished.pages
        self._running: dict[str, Request] = {}
        self._swept = -math.inf
        self._forgetting: threading.Thread | None = None
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
        retention_seconds: float | None = None,
        index_in_memory: bool = False,
    ) -> SpoolWriter:
        """The spool in `folder`, continued where it has one of this layout, else made with at most `size_bytes`.

        An existing ring keeps its size, whatever `size_bytes` says; `size_bytes` of the writer tells it.
        max_sample_tokens: rows a sample keeps at most; a longer one keeps its last ones, for they carry the loss.
        retention_seconds: older samples are given up and wiped; None: samples stay until they are overwritten.
        index_in_memory: for a full disk, see Ledger.open.
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
            ledger, samples = Ledger.open(folder, ring, in_memory=index_in_memory)
            finished = Finished(ring, samples)
            builder = Builder(ring, finished.pages, max_sample_tokens)
            sealer = Sealer(ring, builder, finished, ledger, run, held_out_share, retention_seconds)
            return cls(folder, ring, lock, ledger, finished, builder, sealer)
        except BaseException as error:
            os.close(lock)
            if isinstance(error, OSError | sqlite3.Error):
                raise unusable(folder, error) from error
            raise

    @property
    def size_bytes(self) -> int:
        """Bytes of the ring's file."""
        return self._ring.size_bytes

    def put_rows(
        self, rid: str, start: int, aux: States, final: States, tokens: Sequence[int] | np.ndarray | None = None
    ) -> None:
        """Stores the states of positions start … start+k-1 of a running request: a forward of one request."""
        self.put_forward([Part(rid, start, 0, len(aux), tokens)], aux, final)

    def put_forward(self, parts: Sequence[Part], aux: States, final: States) -> None:
        """Stores the rows of one forward.

        aux [k, 3H], final [k, H], on the CPU, bfloat16 or float32 (rounded), or uint16 with the bits of bfloat16. Rows
        in no part are ignored. A request's first part starts where its prefix was cached: the rows before it are taken
        over from the pages that hold them, if its tokens are given and the pages are still there. A start before the
        end of what is there rewrites from that position on: what came after is forgotten. ValueError for wrong shapes;
        lack of room drops the request and is counted.
        """
        aux, final, hidden = row_words(aux), row_words(final), self._ring.layout.hidden_size
        fits = aux.shape == (len(aux), 3 * hidden) and final.shape == (len(aux), hidden)
        if not fits or any(part.start < 0 or part.offset + part.length > len(aux) for part in parts):
            raise ValueError(f"rows {aux.shape} and {final.shape} for {list(parts)} do not fit the ring")
        self._ring.check()
        checks = row_sums(aux, final) if aux.nbytes <= _SUMMED_AT_ONCE else None
        for part in parts:
            if not part.length or part.rid in self._refused:
                continue
            rows = slice(part.offset, part.offset + part.length)
            try:
                request = self._placed(part)
                if request is not None:
                    self._builder.extend(request, aux[rows], final[rows], None if checks is None else checks[rows])
            except RingFull:
                self.refuse(part.rid, "ring_full")

    def _placed(self, part: Part) -> Request | None:
        """The part's request, ready for a row at its start; None where it is refused. RingFull."""
        rid, start = part.rid, part.start
        tokens = None if part.tokens is None else np.asarray(part.tokens, np.int32)
        request = self._running.get(rid)
        if request is None or start < request.first:  # new, or computed again from further back
            if request is not None:
                self._pages.release(self._running.pop(rid).pages)
            request = self._builder.begin(start, np.empty(0, np.int32) if tokens is None else tokens)
            self._running[rid] = request
        elif start > request.end:
            self.refuse(rid, "gap")
            return None
        else:
            if start < request.end:
                self._builder.rewind(request, start)
            request.tokens = request.tokens if tokens is None else tokens
        return request

    def finish(
        self,
        rid: str,
        tokens: Sequence[int],
        prompt_tokens: int,
        *,
        draft_version: int,
        verify_steps: int,
        accepted_tokens: int,
        domain: str = "",
        origin: SampleInfo | None = None,
    ) -> int | None:
        """Turns a running request into a sample that readers see, all at once. Returns its id, None when dropped.

        tokens: prompt and output, from position 0. Rows beyond them are ignored; tokens without a row at the end (the
        last generated one has none) are cut off. domain: see samples.domain_label. origin: of an imported sample, which
        keeps its run, time, split and domain.
        """
        self._ring.check()
        if rid in self._refused:
            self._refused.discard(rid)
            self._sealer.commit()
            return None
        request = self._running.pop(rid, None) or Request(0, 0)
        figures: dict[str, Any] = {"draft_version": draft_version, "verify_steps": verify_steps}
        figures |= {"accepted": accepted_tokens, "domain": domain}
        return self._sealer.finish(request, np.asarray(tokens, "<i4"), prompt_tokens, figures, origin)

    def abort(self, rid: str) -> None:
        """Forgets a running request and gives its pages back; an unknown one is nothing to forget."""
        if rid in self._running:
            self.refuse(rid, "aborted")
        self._refused.discard(rid)

    def discard(self, rid: str) -> None:
        """Gives the pages of a request back that was not to become a sample; it is not counted."""
        if request := self._running.pop(rid, None):
            self._pages.release(request.pages)
        self._refused.discard(rid)

    def refuse(self, rid: str, cause: str) -> None:
        """Gives the request's pages back, counts it under `dropped_<cause>` and ignores its rows until it ends."""
        if rid not in self._refused:
            request = self._running.pop(rid, None)
            self._pages.release(request.pages if request else [])
            self._refused.add(rid)
            self.count(f"dropped_{cause}")

    def count(self, name: str) -> None:
        """One more of something that is neither a sample nor a drop."""
        self._ledger.count(name)

    def counters(self) -> dict[str, int]:
        """Totals since the spool was made: samples, tokens (rows stored, each once), dropped_<cause>, and more."""
        return dict(self._ledger.totals)

    @property
    def fill(self) -> float:
        """Part of the ring's pages that samples and running requests hold."""
        return 1 - self._pages.free / self._ring.pages

    def erase(self, chosen: Callable[[int, float], bool]) -> Erased:
        """Gives up finished samples and overwrites what they leave, at once. chosen: of (id, created), the unix second.

        Every page that nobody holds is overwritten where anything stands in it, whoever left it there.
        """
        erased = self.begin_erase(chosen)
        while self.wipe(2**30):
            pass
        self.scrub()
        return erased

    def begin_erase(self, chosen: Callable[[int, float], bool]) -> Erased:
        """`erase` without the work: the samples are gone, `wipe` and then `scrub` are still to be called."""
        erased = self._finished.erase(chosen)
        self._clear_running()
        self._sealer.commit()
        return erased

    def _clear_running(self) -> None:
        """What earlier requests have left goes from the pages of those that run, too."""
        for request in self._running.values():
            self._builder.clear_unused(request)

    def wipe(self, size_bytes: int) -> bool:
        """Overwrites the next pages that wait for it, about `size_bytes` of them. False when none waits."""
        self._ring.check()
        return bool(self._pages.wipe(max(1, size_bytes // self._ring.layout.bytes_per_page)))

    def scrub(self) -> None:
        """Lets nothing of erased samples stay in the index's file or its journal."""
        self._ledger.scrub()

    def sync(self) -> None:
        """Waits until everything written is on the disk. OSError."""
        self._ring.sync()

    def expire(self) -> None:
        """Gives up the samples that are older than they may be; `wipe` overwrites what they leave, and what aborted
        and killed requests have left. The reservoir's copies are erased meanwhile: a trainer may be idle, or off."""
        self._sealer.give_up_expired()
        if self._sealer.retention is not None and not (self._forgetting and self._forgetting.is_alive()):
            old = (self._folder / RESERVOIR_FOLDER, self._sealer.retention)
            # on a thread of its own: it waits for the disk, and for a trainer that writes
            self._forgetting = threading.Thread(target=erase_expired, args=old, name="tide-expiry", daemon=True)
            self._forgetting.start()
        if self._sealer.retention is not None and time.monotonic() >= self._swept + _SWEEP_EVERY:
            self._pages.doom_leavings()
            self._clear_running()
            self._swept = time.monotonic()
        if self._finished.gone:
            self._sealer.commit()

    def close(self) -> None:
        """Writes the counters and lets the folder go; requests that still run are forgotten."""
        if self._lock is None:
            return
        if self._forgetting:
            self._forgetting.join()
        self._sealer.commit()
        self._ledger.close()
        del self._pages, self._builder, self._finished, self._sealer
        self._ring.close()
        os.close(self._lock)
        self._lock = None
