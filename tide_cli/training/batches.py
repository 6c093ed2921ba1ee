"""Which samples make a batch, and the batch itself: fresh traffic mixed with replay, like lengths together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tide_cli.spool.samples import Sample, SampleInfo

if TYPE_CHECKING:
    from tide_cli.training.material import Source

# Batches are cut from windows of this many: long enough to find samples of like length, short enough to stay mixed.
_WINDOW = 8


@dataclass(frozen=True)
class Ref:
    """A stored sample not yet read. `read` gives None where it was overwritten meanwhile.

    source: what another process needs to read it itself.
    """

    tokens: int
    read: Callable[[], Sample | None]
    source: Source | None = None

    @property
    def info(self) -> SampleInfo:
        """Of a sample that has a source."""
        return self.source if isinstance(self.source, SampleInfo) else self.source.info


def plan_pass(
    fresh: Sequence[Ref], old: Sequence[Ref], *, replay_share: float, batch_tokens: int, rng: random.Random
) -> list[list[Ref]]:
    """One pass over the fresh samples, each used once, with old ones drawn to be `replay_share` of the tokens.

    Every batch holds at least one sample and, where it holds more, at most `batch_tokens` padded tokens.
    """
    refs = list(fresh)
    wanted = sum(ref.tokens for ref in fresh) * replay_share / (1 - replay_share)
    while old and wanted > 0:
        refs.append(rng.choice(old))
        wanted -= refs[-1].tokens
    rng.shuffle(refs)
    batches: list[list[Ref]] = []
    while refs:
        window = _take(refs, _WINDOW * batch_tokens)
        window.sort(key=lambda ref: ref.tokens)
        cut = _cut(window, batch_tokens)
        rng.shuffle(cut)
        batches += cut
    return batches


def _take(refs: list[Ref], tokens: int) -> list[Ref]:
    """Remove refs from the end of the list until they hold `tokens`."""
    taken: list[Ref] = []
    while refs and (not taken or tokens > 0):
        taken.append(refs.pop())
        tokens -= taken[-1].tokens
    return taken


def _cut(ascending: list[Ref], batch_tokens: int) -> list[list[Ref]]:
    batches: list[list[Ref]] = []
    for ref in ascending:
        if not batches or (len(batches[-1]) + 1) * ref.tokens > batch_tokens:
            batches.append([])
        batches[-1].append(ref)
    return batches


def collate(samples: Sequence[Sample], max_tokens: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """SpecForge's EAGLE3 tensors, padded with zeros: [B, T] ids and masks, hidden_state [B, T, 3H], target [B, T, H].

    A longer sample keeps its last `max_tokens` rows, where the generated ones are. Besides the generated rows the one
    before them counts: the first round of a request starts there. With CUDA the tensors are pinned, to be copied
    without a stop.
    """
    parts = [_last_rows(sample, max_tokens) for sample in samples]
    longest = max(len(tokens) for tokens, *_ in parts)
    batch, hidden = len(parts), samples[0].final.shape[1]
    zeros = partial(torch.zeros, pin_memory=torch.cuda.is_available())
    ids, attention, loss = (zeros(batch, longest, dtype=torch.int64) for _ in range(3))
    aux = zeros(batch, longest, 3 * hidden, dtype=dtype)
    final = zeros(batch, longest, hidden, dtype=dtype)
    for i, (tokens, generated, sample_aux, sample_final) in enumerate(parts):
        count = len(tokens)
        ids[i, :count], attention[i, :count] = tokens, 1
        loss[i, :count] = generated
        loss[i, : count - 1] |= generated[1:]
        aux[i, :count], final[i, :count] = sample_aux, sample_final
    return {"input_ids": ids, "attention_mask": attention, "loss_mask": loss, "hidden_state": aux, "target": final}


def _last_rows(sample: Sample, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return sample.tokens[-count:], sample.loss_mask[-count:].long(), sample.aux[-count:], sample.final[-count:]
