"""The reading end of the spool, for any number of processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tide_cli.spool.folder import no_ring, unusable
from tide_cli.spool.index import SpoolIndex
from tide_cli.spool.layout import RowLayout, row_runs
from tide_cli.spool.ring import Ring, checksum, row_sums
from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.spool.trained import times_trained


class SpoolReader:
    """Lists samples and copies them out while the writer goes on.

    folder: of the spool. overwritten, damaged: samples `read` could not give, because their pages went to newer ones,
    or because their checksum was wrong.
    """

    def __init__(self, ring: Ring, index: SpoolIndex, folder: Path) -> None:
        self._ring, self._index, self.folder = ring, index, folder
        self.overwritten = self.damaged = 0

    @classmethod
    def open(cls, folder: Path) -> SpoolReader:
        """The spool in `folder`. TideError when there is none, or an unusable one."""
        index = SpoolIndex.open(folder)
        try:
            return cls(Ring.open(folder), index, folder)
        except OSError as error:
            index.close()
            raise no_ring(folder, error) from None
        except BaseException:
            index.close()
            raise

    @property
    def layout(self) -> RowLayout:
        return self._ring.layout

    def samples(
        self,
        *,
        split: str | None = None,
        newest: int | None = None,
        since_id: int = 0,
        times_trained_max: int | None = None,
        **filters: Any,
    ) -> list[SampleInfo]:
        """Samples with id > since_id, newest first, at most `newest`; split: 'train', 'held_out' or None for both.

        times_trained_max: only samples trained on at most so often; filters: see SpoolIndex.samples.
        """
        times = times_trained(self.folder)
        if times_trained_max is None:
            infos = self._index.samples(split=split, newest=newest, since_id=since_id, **filters)
            return [_with_times(info, times) for info in infos]
        limit = filters.pop("oldest", None)
        order: dict[str, Any] = (
            {} if limit is None else {"oldest": -1}
        )  # no limit before the filter: SQLite reads -1 as all
        infos = self._index.samples(split=split, since_id=since_id, **order, **filters)
        fitting = [info for each in infos if (info := _with_times(each, times)).times_trained <= times_trained_max]
        return fitting[: newest if limit is None else limit]

    def read(self, info: SampleInfo) -> Sample | None:
        """A private copy of the sample's rows. None when it was overwritten meanwhile or is damaged (both counted).

        OSError where the ring's file was cut short under the mapping.
        """
        import torch  # listing and counting need none

        ring = self._ring
        rows = self._copied(info, ring.tokens, ring.aux, ring.final)
        if rows is None:
            return None
        tokens, aux, final = rows
        if checksum(info, tokens, row_sums(aux, final)) != info.checksum:
            self.damaged += 1
            return None
        positions = np.arange(info.prefix_missing, info.prefix_missing + info.tokens)
        return Sample(
            info=info,
            tokens=torch.from_numpy(tokens.astype(np.int64)),
            loss_mask=torch.from_numpy(positions >= info.prompt_tokens),
            aux=torch.from_numpy(aux).view(torch.bfloat16),
            final=torch.from_numpy(final).view(torch.bfloat16),
        )

    def holds(self, info: SampleInfo) -> bool:
        """Whether the sample is still in the ring: neither overwritten nor erased."""
        return self._ring.holds(info.pages, info.generations)

    def held(self, infos: Iterable[SampleInfo]) -> list[SampleInfo]:
        """Those of `infos` that the ring has not given up. The index still names such samples where its writer was
        killed before it had the last word, and for a moment while one writes; figures that cannot be are for `read`.

        TideError where the ring's file was cut short under the mapping.
        """
        try:
            self._ring.check()
        except OSError as error:
            raise unusable(self.folder, error) from None
        return [info for info in infos if not self._is_possible(info) or self.holds(info)]

    def generated_tokens(self, info: SampleInfo) -> np.ndarray | None:
        """Ids [info.generated] int32 of what the target said, without reading its states; None as for `read`."""
        rows = self._copied(info, self._ring.tokens, self._ring.checks)
        if rows is None:
            return None
        tokens, checks = rows
        if checksum(info, tokens, checks) != info.checksum:
            self.damaged += 1
            return None
        return tokens[info.tokens - info.generated :]

    def totals(self) -> dict[str, int]:
        """The counters: samples and tokens stored since the spool was made, requests dropped by cause."""
        return self._index.totals()

    def close(self) -> None:
        self._index.close()
        self._ring.close()

    def _copied(self, info: SampleInfo, *regions: np.ndarray) -> list[np.ndarray] | None:
        """The sample's rows of each region; None, and counted, where they are overwritten or its figures are wrong."""
        ring, size = self._ring, self._ring.layout.page_tokens
        ring.check()
        if not self._is_possible(info):
            self.damaged += 1
            return None
        if not ring.holds(info.pages, info.generations):
            self.overwritten += 1
            return None
        copies = [np.empty((info.tokens, *region.shape[1:]), region.dtype) for region in regions]
        for row, offset, length in row_runs(info.pages, size, info.prefix_missing % size, info.tokens):
            for region, copy in zip(regions, copies, strict=True):
                copy[offset : offset + length] = region[row : row + length]
        # after the copy: the writer takes the generation away before it reuses a page
        if not ring.holds(info.pages, info.generations):
            self.overwritten += 1
            return None
        return copies

    def _is_possible(self, info: SampleInfo) -> bool:
        """Whether the figures, which may come from a damaged index, describe places of this ring."""
        figures = (info.prompt_tokens, info.prefix_missing, info.cut, info.reused, info.verify_steps, info.accepted)
        numbers = self._ring.layout.page_numbers(info.prefix_missing, info.tokens)
        return (
            info.tokens > 0
            and all(0 <= figure < 2**32 for figure in (*figures, info.checksum))
            and -(2**31) <= info.draft_version < 2**31
            and len(numbers) == len(info.pages) == len(info.generations)
            and all(0 <= page < self._ring.pages for page in info.pages)
            and all(info.generations)
        )


def _with_times(info: SampleInfo, times: dict[int, tuple[float, int]]) -> SampleInfo:
    created, count = times.get(info.id, (info.created, 0))
    return replace(info, times_trained=count) if count and created == info.created else info
