"""Capture: the target's hidden states of every forward, from the scheduler to the spool, without a request waiting.

EAGLE3 computes the aux states anyway, so capture adds a copy and no compute. The scheduler's thread hands each
forward over by reference (on a CPU) or as a copy in flight on a side stream (on CUDA); a thread of its own waits
for the copy, cuts the batch into requests and writes the rows. A full queue drops, and counts, the requests in the
forward, and so does want of memory for the copy.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import time
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from tide_cli.engine.plugin.captured import OWN_REQUEST_PREFIXES, Erase, Finished, ForwardBatch, Rows, is_chosen
from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.engine.plugin.side_thread import start_side_thread
from tide_cli.engine.plugin.staging import Staging
from tide_cli.errors import TideError, reason
from tide_cli.spool.erase import Erased, answer, read_request
from tide_cli.spool.layout import RowLayout

if TYPE_CHECKING:
    from tide_cli.spool.writer import SpoolWriter

logger = logging.getLogger(__name__)

_QUEUED_FORWARDS = 256
_QUEUED_BYTES = 2 * 2**30  # of host memory, that they may hold: a prefill of 8192 tokens takes 320 MiB at H = 2880
_LOOK_EVERY = 60.0  # seconds between two searches for what is too old to stay
_WIPED_AT_ONCE = 8 * 2**20  # bytes of erased pages that are overwritten between two forwards


class Capture:
    """The scheduler's side (before_forward, after_forward, after_result) and the thread that writes.

    sample_rate: share of the requests that is stored.
    """

    def __init__(
        self, writer: SpoolWriter, staging: Staging, max_in_flight: int, *, folder: Path, sample_rate: float = 1.0
    ) -> None:
        self._writer = writer
        self._staging = staging
        self._folder, self._sample_rate = folder, sample_rate
        self._queue: queue.Queue[Rows | Finished | Erase] = queue.Queue(_QUEUED_FORWARDS)
        self._bytes_put = self._bytes_taken = 0  # of states; each is written by one of the two threads alone
        self._wiping = False
        self._look_at = time.monotonic() + _LOOK_EVERY
        self._erasing: dict[int, Erased] = {}  # requests whose pages are not all overwritten yet
        self._lost_rows: dict[str, str] = {}  # running requests that lost rows -> what to
        self._lost_ends: deque[str] = deque()  # requests whose end was lost to it
        self._max_in_flight = max_in_flight
        self._in_flight: OrderedDict[str, None] = OrderedDict()
        self._short_of_memory = False  # once: it is logged the first time
        self._failure: str | None = None

    @classmethod
    def start(cls, config: EngineConfig) -> Capture:
        from tide_cli.spool.writer import SpoolWriter

        layout = RowLayout(hidden_size=config.hidden_size, target=config.target)
        writer = SpoolWriter.open(
            config.spool,
            layout,
            config.spool_size,
            run=config.run,
            max_sample_tokens=config.max_sample_tokens,
            held_out_share=config.held_out_share,
            retention_seconds=None if config.retention_hours is None else config.retention_hours * 3600,
        )
        # A request that is aborted between two chunks of its prefill ends unseen: its rows are the oldest in flight.
        capture = cls(
            writer,
            Staging.for_this_device(),
            max_in_flight=4 * config.max_running_requests,
            folder=config.spool,
            sample_rate=config.capture_sample_rate,
        )
        start_side_thread("tide-capture", capture._write_forever)
        logger.info("tide: capturing hidden states to %s", config.spool)
        return capture

    # ------------------------------------------------------------ on the scheduler's thread

    def before_forward(self, batch) -> ForwardBatch | None:
        if batch.forward_mode.is_idle() or self._failure:
            return None
        rids = [req.rid for req in batch.reqs]
        if not any(self._is_stored(rid) for rid in rids):
            return None
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            # copies: SGLang appends to these ids in place
            tokens = [np.array(req.get_fill_ids(), np.int32) for req in batch.reqs]
            return ForwardBatch(rids, list(batch.prefix_lens), list(batch.extend_lens), tokens)
        # a copy: the capture thread reads it when the scheduler may have gone on to the next step
        return ForwardBatch(rids, batch.seq_lens.clone(), None)

    def after_forward(self, before: ForwardBatch | None, output) -> None:
        if before is None:
            return
        logits = output.logits_output
        if logits is None or logits.last_hidden_states is None:
            return
        aux, final = logits.hidden_states, logits.last_hidden_states
        size = self._staging.host_bytes(aux, final)
        if not self._has_room(size):  # asked before the copy is begun, which would be in vain
            self._lose_rows(before, "queue_full")
            return
        accept_lens = None if before.counts is not None else output.accept_lens
        starts = before.starts if isinstance(before.starts, torch.Tensor) else None
        try:
            copy = self._staging.copy(aux=aux, final=final, accept_lens=accept_lens, starts=starts)
        except RuntimeError as error:  # no memory on the device, or none to be pinned: SGLang would end with it
            if not self._short_of_memory:
                logger.warning("tide: a forward could not be captured, as others like it: %s", error)
            self._short_of_memory = True
            self._lose_rows(before, "no_memory")
            return
        self._bytes_put += size
        self._put(Rows(before, copy, size))

    def after_result(self, reqs) -> None:
        for req in reqs:
            if req.finished() and not req.rid.startswith(OWN_REQUEST_PREFIXES):
                self._put(Finished.of(req))

    def counters(self) -> dict[str, int | str]:
        return self._writer.counters() | ({"failure": self._failure} if self._failure else {})

    def fill(self) -> float | None:
        """Part of the spool that is taken; None once capture has stopped."""
        return None if self._failure else round(self._writer.fill, 4)

    def erase(self, number: int) -> None:
        """Begin what `ask` of spool/erase.py has left there under this number; the answer says what came of it."""
        if not self._put(Erase(number)):
            self._answer(number, None, "capture has stopped" if self._failure else "its queue is full; try again")

    def _is_stored(self, rid: str) -> bool:
        return not rid.startswith(OWN_REQUEST_PREFIXES) and is_chosen(rid, self._sample_rate)

    def _lose_rows(self, before: ForwardBatch, cause: str) -> None:
        self._lost_rows.update(dict.fromkeys(filter(self._is_stored, before.rids), cause))

    def _put(self, item: Rows | Finished | Erase) -> bool:
        if self._failure:
            return False
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            if isinstance(item, Finished) and self._is_stored(item.rid):
                self._lost_ends.append(item.rid)
            return False
        return True

    def _has_room(self, size: int) -> bool:
        """Whether a forward with so many bytes may wait; one that is alone may have any size."""
        waiting = self._bytes_put - self._bytes_taken
        return not self._queue.full() and (not waiting or waiting + size <= _QUEUED_BYTES)

    # ------------------------------------------------------------ on the capture thread

    def _write_forever(self) -> None:
        try:
            while True:
                self._write_next()
        except Exception as error:  # capture may end, serving goes on
            self._failure = reason(error)
            logger.exception("tide: capture stopped: %s; serving goes on", error)
        with suppress(Exception):
            self._writer.close()  # so that others can open the spool
        while not self._queue.empty():  # the forwards in it hold memory
            self._queue.get()

    def _write_next(self) -> None:
        """Wait a while for the next item and write it, then do a part of what need not be done at once."""
        try:
            item = self._queue.get(timeout=0 if self._wiping else _LOOK_EVERY)
        except queue.Empty:
            item = None
        if time.monotonic() >= self._look_at:  # whatever comes
            self._writer.expire()
            self._look_at = time.monotonic() + _LOOK_EVERY
        while self._lost_ends:
            self._forget(self._lost_ends.popleft(), "queue_full")
        match item:
            case Finished():
                self._finish(item)
            case Rows():
                self._write_rows(item)
                self._bytes_taken += item.size
            case Erase(number):
                self._erase(number)
        self._wiping = self._writer.wipe(_WIPED_AT_ONCE)
        if self._erasing and not self._wiping:
            self._answer_erased()

    def _write_rows(self, rows: Rows) -> None:
        host = rows.copy.wait()
        parts = [part for part in rows.batch.parts(host) if part.length and self._is_stored(part.rid)]
        for part in parts:
            self._touch(part.rid)
            self._refuse_if_lost(part.rid)
        self._writer.put_forward(parts, host["aux"], host["final"])

    def _erase(self, number: int) -> None:
        try:
            erased = self._writer.begin_erase(read_request(self._folder, number))
        except TideError as error:
            self._answer(number, None, "; ".join(error.lines()))
        else:
            logger.info("tide: erased %d samples; %d pages are to be overwritten", erased.samples, erased.pages)
            self._erasing[number] = erased

    def _answer_erased(self) -> None:
        problem = None
        try:
            self._writer.scrub()
        except sqlite3.Error as error:
            problem = f"the samples are gone, but not their rows in the index's journal: {error}"
        for number, erased in self._erasing.items():
            self._answer(number, None if problem else erased, problem)
        self._erasing.clear()

    def _answer(self, number: int, erased: Erased | None, problem: str | None) -> None:
        try:
            answer(self._folder, number, erased, problem)
        except OSError as error:  # whoever asked waits in vain, and says so
            logger.warning("tide: cannot answer a request to erase: %s", error)

    def _touch(self, rid: str) -> None:
        self._in_flight[rid] = None
        self._in_flight.move_to_end(rid)
        if len(self._in_flight) > self._max_in_flight:
            self._forget(next(iter(self._in_flight)), "aborted")

    def _refuse_if_lost(self, rid: str) -> None:
        if cause := self._lost_rows.pop(rid, None):
            self._writer.refuse(rid, cause)

    def _forget(self, rid: str, cause: str) -> None:
        """Give a request's pages back: it has ended, but not as a sample."""
        self._in_flight.pop(rid, None)
        self._lost_rows.pop(rid, None)
        self._writer.refuse(rid, cause)
        self._writer.abort(rid)

    def _finish(self, done: Finished) -> None:
        if not self._is_stored(done.rid):
            self._writer.count("skipped")
            return
        if done.aborted:
            self._forget(done.rid, "aborted")
            return
        self._in_flight.pop(done.rid, None)
        if not done.answers:  # there is nothing to learn from: no loss
            self._lost_rows.pop(done.rid, None)
            self._writer.discard(done.rid)
            return
        self._refuse_if_lost(done.rid)
        self._writer.finish(
            done.rid,
            done.tokens,
            done.prompt_tokens,
            draft_version=done.draft_version,
            verify_steps=done.verify_steps,
            accepted_tokens=done.correct_drafts,
            domain=done.domain,
        )
