"""How the pages of a request that has ended become a sample.

A kill at any moment leaves whole samples because of the order of the writes:

1. the pages: token ids and links, then the generations; from then on they never change (Builder.complete)
2. the entry of the last page: the figures and the checksum, then the id; now it is a sample (Finished.add)
3. the index, in one transaction (Ledger.commit); a sample that it lacks is taken up by the next opening

A sample that is given up loses its id first, then its pages their generations, and last the index its row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tide_cli.spool.finished import Finished
from tide_cli.spool.ledger import Ledger
from tide_cli.spool.ring import Ring, checksum
from tide_cli.spool.running import Builder, Request, RingFull
from tide_cli.spool.samples import SampleInfo, split_of


class Sealer:
    """Finishes requests of one ring and keeps the ledger in step; what makes no sample is counted there.

    retention: age in seconds at which samples are given up; None: none.
    """

    def __init__(
        self,
        ring: Ring,
        builder: Builder,
        finished: Finished,
        ledger: Ledger,
        run: str,
        held_out_share: float,
        retention_seconds: float | None,
    ) -> None:
        self._ring, self._builder, self._finished, self._ledger = ring, builder, finished, ledger
        self._run, self._held_out_share, self.retention = run, held_out_share, retention_seconds

    def finish(
        self,
        request: Request,
        tokens: np.ndarray,
        prompt_tokens: int,
        figures: dict[str, Any],
        origin: SampleInfo | None,
    ) -> int | None:
        """The id of the sample that the request makes; None where it makes none, and its pages are given back.

        tokens int32: prompt and output. figures: the fields of SampleInfo that the ring does not know; origin: see
        SpoolWriter.finish.
        """
        info = self._sealed(request, tokens, prompt_tokens, figures, origin)
        if isinstance(info, str):
            self._finished.pages.release(request.pages)
            self._ledger.count(f"dropped_{info}")
            self.commit()
            return None
        self._finished.add(info)
        self.give_up_expired()
        if not self.commit([info]):
            self._finished.give_up(info.id)
            self._ledger.count("dropped_index")
            return None
        return info.id

    def give_up_expired(self) -> None:
        """Gives up the samples that are older than they may be."""
        if self.retention is not None:
            self._finished.give_up_before(time.time() - self.retention)

    def commit(self, added: Sequence[SampleInfo] = ()) -> bool:
        """Brings the index up to date; what fails now (a full disk) is tried again with the next request's end."""
        if not self._ledger.commit(added, self._finished.gone):
            return False
        self._finished.gone.clear()
        return True

    def _sealed(
        self,
        request: Request,
        tokens: np.ndarray,
        prompt_tokens: int,
        figures: dict[str, Any],
        origin: SampleInfo | None,
    ) -> SampleInfo | str:
        """The sample that the request makes, its pages sealed, or the cause why there is none."""
        end, ring, pages = min(request.end, len(tokens)), self._ring, self._finished.pages
        if end <= max(request.first, prompt_tokens):
            return "empty" if end <= request.first else "no_output"
        try:
            if end < request.end:
                self._builder.rewind(request, end)
        except RingFull:
            return "ring_full"
        if len(request.pages) <= request.adopted:
            return "no_output"  # others have computed all of it
        self._builder.complete(request, tokens[:end])
        rows = ring.rows_of(request.pages, request.first, end - request.first)
        if not np.array_equal(ring.tokens[rows], tokens[request.first : end]):
            return "tokens"
        sample_id = self._ledger.totals["samples"] + 1
        info = SampleInfo(
            id=sample_id,
            run=self._run,
            created=time.time(),
            tokens=len(rows),
            prompt_tokens=prompt_tokens,
            prefix_missing=request.first,
            cut=request.cut,
            reused=max(0, request.reused_to - request.first),
            split=split_of(sample_id, self._held_out_share),
            checksum=0,
            pages=tuple(request.pages),
            generations=pages.generations(request.pages),
            **figures,
        )
        if origin is not None:
            kept = ("run", "created", "split", "cut", "domain")
            info = replace(info, **{name: getattr(origin, name) for name in kept})
        return replace(info, checksum=checksum(info, ring.tokens[rows], ring.checks[rows]))
