"""The reading end of the spool, for any number of processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tide_cli.errors import TideError
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.layout import RowLayout, row_runs
from tide_cli.spool.ring import Ring, checksum, row_sums
from tide_cli.spool.samples import Sample, SampleInfo


class SpoolReader:
    """Lists samples and copies them out while the writer goes on.

    overwritten, damaged: samples `read` could not give, because their pages went to newer ones, or because their
    checksum was wrong.
    """

    def __init__(self, ring: Ring, index: SpoolIndex) -> None:
        self._ring, self._index = ring, index
        self.overwritten = self.damaged = 0

    @classmethod
    def open(cls, folder: Path) -> SpoolReader:
        """The spool in `folder`. TideError when there is none, or an unusable one."""
        index = SpoolIndex.open(folder)
        try:
            return cls(Ring.open(folder), index)
        except OSError as error:
            index.close()
            raise TideError(f"there is no spool in {folder}", why=error.strerror, remedy="start one: tide up") from None
        except BaseException:
            index.close()
            raise

    @property
    def layout(self) -> RowLayout:
        return self._ring.layout

    def samples(self, *, split: str | None = None, newest: int | None = None, since_id: int = 0) -> list[SampleInfo]:
        """Samples with id > since_id, newest first, at most `newest`; split: 'train', 'held_out' or None for both."""
        return self._index.samples(split=split, newest=newest, since_id=since_id)

    def read(self, info: SampleInfo) -> Sample | None:
        """A private copy of the sample's rows. None when it was overwritten meanwhile or is damaged (both counted)."""
        ring, count, hidden = self._ring, info.tokens, self._ring.layout.hidden_size
        if not ring.owned(info.id, info.pages):
            self.overwritten += 1
            return None
        tokens = np.empty(count, "<i4")
        aux, final = np.empty((count, 3 * hidden), "<u2"), np.empty((count, hidden), "<u2")
        for row, offset, length in row_runs(info.pages, ring.layout.page_tokens, 0, count):
            there, here = slice(row, row + length), slice(offset, offset + length)
            tokens[here], aux[here], final[here] = ring.tokens[there], ring.aux[there], ring.final[there]
        # after the copy: the writer disowns pages before it reuses them
        if not ring.owned(info.id, info.pages):
            self.overwritten += 1
            return None
        if checksum(info, tokens, row_sums(aux, final)) != info.checksum:
            self.damaged += 1
            return None
        positions = np.arange(info.prefix_missing, info.prefix_missing + count)
        return Sample(
            info=info,
            tokens=torch.from_numpy(tokens.astype(np.int64)),
            loss_mask=torch.from_numpy(positions >= info.prompt_tokens),
            aux=torch.from_numpy(aux).view(torch.bfloat16),
            final=torch.from_numpy(final).view(torch.bfloat16),
        )

    def totals(self) -> dict[str, int]:
        """The counters: samples and tokens stored since the spool was made, requests dropped by cause."""
        return self._index.totals()

    def close(self) -> None:
        self._index.close()
        self._ring.close()
