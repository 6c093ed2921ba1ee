"""Capture: the target's hidden states of every forward, from the scheduler to the spool, without a request waiting.

EAGLE3 computes the aux states anyway, so capture adds a copy and no compute. The scheduler's thread hands each
forward over by reference (on a CPU) or as a copy in flight on a side stream (on CUDA); a thread of its own waits
for the copy, cuts the batch into requests and writes the rows. A full queue drops, and counts, the requests in it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass

import torch
from sglang.srt.managers.schedule_batch import FINISH_ABORT

from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.engine.plugin.staging import HostCopy, Staging
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.writer import SpoolWriter

logger = logging.getLogger(__name__)

# Requests whose id starts so are TIDE's or SGLang's own questions, not traffic.
OWN_REQUEST_PREFIXES = ("tide-", "HEALTH_CHECK")

_QUEUED_FORWARDS = 256


@dataclass(frozen=True)
class ForwardBatch:
    """What must be noted before a forward, because SGLang changes the batch in place."""

    rids: list[str]
    starts: list[int] | torch.Tensor  # first position of each request's rows
    counts: list[int] | None  # rows of each request in a prefill; None in verify, where accept_lens tells


@dataclass(frozen=True)
class Rows:
    """One forward on its way to the spool: aux [rows, 3H], final [rows, H], accept_lens [bs] or None."""

    batch: ForwardBatch
    copy: HostCopy


@dataclass(frozen=True)
class Finished:
    """A request that has ended; tokens = prompt and output up to the stop."""

    rid: str
    tokens: list[int]
    prompt_tokens: int
    draft_version: int
    verify_steps: int
    correct_drafts: int
    aborted: bool


class Capture:
    """The scheduler's side (before_forward, after_forward, after_result) and the thread that writes."""

    def __init__(self, writer: SpoolWriter, staging: Staging, max_in_flight: int) -> None:
        self._writer = writer
        self._staging = staging
        self._queue: queue.Queue[Rows | Finished] = queue.Queue(_QUEUED_FORWARDS)
        self._lost_rows: set[str] = set()  # running requests that lost rows to a full queue
        self._lost_ends: deque[str] = deque()  # requests whose end was lost to it
        self._max_in_flight = max_in_flight
        self._in_flight: OrderedDict[str, None] = OrderedDict()
        self._failure: str | None = None

    @classmethod
    def start(cls, config: EngineConfig) -> Capture:
        layout = RowLayout(hidden_size=config.hidden_size, target=config.target)
        writer = SpoolWriter.open(
            config.spool,
            layout,
            config.spool_size,
            run=config.run,
            max_sample_tokens=config.max_sample_tokens,
            held_out_share=config.held_out_share,
        )
        # A request that is aborted between two chunks of its prefill ends unseen: its rows are the oldest in flight.
        capture = cls(writer, Staging.for_this_device(), max_in_flight=4 * config.max_running_requests)
        threading.Thread(target=capture._write_forever, name="tide-capture", daemon=True).start()
        logger.info("tide: capturing hidden states to %s", config.spool)
        return capture

    # ------------------------------------------------------------ on the scheduler's thread

    def before_forward(self, batch) -> ForwardBatch | None:
        if batch.forward_mode.is_idle() or self._failure:
            return None
        rids = [req.rid for req in batch.reqs]
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return ForwardBatch(rids, list(batch.prefix_lens), list(batch.extend_lens))
        # a copy: the capture thread reads it when the scheduler may have gone on to the next step
        return ForwardBatch(rids, batch.seq_lens.clone(), None)

    def after_forward(self, before: ForwardBatch | None, output) -> None:
        if before is None:
            return
        logits = output.logits_output
        if logits is None or logits.last_hidden_states is None:
            return
        aux, final = logits.hidden_states, logits.last_hidden_states
        accept_lens = None if before.counts is not None else output.accept_lens
        starts = before.starts if isinstance(before.starts, torch.Tensor) else None
        self._put(Rows(before, self._staging.copy(aux=aux, final=final, accept_lens=accept_lens, starts=starts)))

    def after_result(self, reqs, draft_version: int) -> None:
        for req in reqs:
            if req.finished() and not req.rid.startswith(OWN_REQUEST_PREFIXES):
                self._put(_finished(req, draft_version))

    def counters(self) -> dict[str, int | str]:
        return self._writer.counters() | ({"failure": self._failure} if self._failure else {})

    def _put(self, item: Rows | Finished) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            if isinstance(item, Rows):
                self._lost_rows.update(item.batch.rids)
            else:
                self._lost_ends.append(item.rid)

    # ------------------------------------------------------------ on the capture thread

    def _write_forever(self) -> None:
        try:
            while True:
                self._write_next()
        except Exception as error:  # capture may end, serving goes on
            logger.exception("tide: capture stopped")
            self._failure = f"{type(error).__name__}: {error}"

    def _write_next(self) -> None:
        """Wait for the next item and write it."""
        item = self._queue.get()
        while self._lost_ends:
            self._forget(self._lost_ends.popleft(), "queue_full")
        if isinstance(item, Finished):
            self._finish(item)
        else:
            self._write_rows(item)

    def _write_rows(self, rows: Rows) -> None:
        host = rows.copy.wait()
        batch = rows.batch
        if batch.counts is not None:
            offsets, counts, starts = _offsets(batch.counts), batch.counts, batch.starts
        else:
            width = host["aux"].shape[0] // len(batch.rids)
            offsets = [width * i for i in range(len(batch.rids))]
            counts, starts = host["accept_lens"].tolist(), host["starts"].tolist()
        for rid, offset, count, start in zip(batch.rids, offsets, counts, starts, strict=True):
            if count == 0 or rid.startswith(OWN_REQUEST_PREFIXES):
                continue
            self._touch(rid)
            self._refuse_if_lost(rid)
            self._writer.put_rows(
                rid, start, host["aux"][offset : offset + count], host["final"][offset : offset + count]
            )

    def _touch(self, rid: str) -> None:
        self._in_flight[rid] = None
        self._in_flight.move_to_end(rid)
        if len(self._in_flight) > self._max_in_flight:
            self._forget(next(iter(self._in_flight)), "aborted")

    def _refuse_if_lost(self, rid: str) -> None:
        if rid in self._lost_rows:
            self._lost_rows.discard(rid)
            self._writer.refuse(rid, "queue_full")

    def _forget(self, rid: str, cause: str) -> None:
        """Give a request's pages back: it has ended, but not as a sample."""
        self._in_flight.pop(rid, None)
        self._lost_rows.discard(rid)
        self._writer.refuse(rid, cause)
        self._writer.abort(rid)

    def _finish(self, done: Finished) -> None:
        if done.aborted:
            self._forget(done.rid, "aborted")
            return
        self._in_flight.pop(done.rid, None)
        self._refuse_if_lost(done.rid)
        self._writer.finish(
            done.rid,
            done.tokens,
            done.prompt_tokens,
            draft_version=done.draft_version,
            verify_steps=done.verify_steps,
            accepted_tokens=done.correct_drafts,
        )


def _finished(req, draft_version: int) -> Finished:
    prompt = list(req.origin_input_ids)
    return Finished(
        rid=req.rid,
        tokens=prompt + list(req.output_ids_through_stop),
        prompt_tokens=len(prompt),
        draft_version=draft_version,
        verify_steps=req.spec_verify_ct,
        correct_drafts=req.spec_num_correct_drafts,
        aborted=isinstance(req.finished_reason, FINISH_ABORT),
    )


def _offsets(counts: list[int]) -> list[int]:
    offsets, total = [], 0
    for count in counts:
        offsets.append(total)
        total += count
    return offsets
