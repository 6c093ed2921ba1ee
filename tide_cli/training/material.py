"""What there is to train on and to be judged by: the spool's newest samples, and old ones from the reservoir.

The reservoir is fed here, with every sample that is read anyway, so that nothing is read for its sake alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from tide_cli.adaptation.early_stop import looked_at
from tide_cli.adaptation.gate import recent_count
from tide_cli.printable import many
from tide_cli.spool.index import INDEX_FILE
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, Reservoir, StoredSample, erase_expired, erase_kept
from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.spool.trained import count_trained
from tide_cli.training.batches import Ref
from tide_cli.training.config import TrainingConfig
from tide_cli.training.target_weights import read_config
from tide_cli.training.walk import predicted

Source = SampleInfo | StoredSample  # in the ring, in the reservoir

# A pass goes over at most this many of the newest samples: older traffic is the reservoir's business.
_NEWEST = 256


class Material:
    """Lists samples anew at every call: traffic goes on while a cycle trains."""

    def __init__(self, config: TrainingConfig) -> None:
        self._config = config
        self._forget_expired()
        self._reservoir = Reservoir(config.spool / RESERVOIR_FOLDER, config.reservoir_size, config.seed)
        self._vocab_size: int = read_config(config.target)["vocab_size"]
        self._unusable: set[tuple[int, int]] = set()
        self._untold = 0  # of these
        self._offered: set[int] = set()
        self._trained: list[SampleInfo] = []  # not yet counted on the disk
        self._held_back: list[SampleInfo] = []
        self._spool: SpoolReader | None = None

    def training(self) -> tuple[list[Ref], list[Ref]]:
        """(fresh, old): the newest training samples, and those of the reservoir that are not among them."""
        fresh, old = self._training()
        return (
            [Ref(info.tokens, lambda info=info: self._read(info), info) for info in fresh],
            [Ref(kept.info.tokens, lambda kept=kept: self._usable(kept.read()), kept) for kept in old],
        )

    def hold_back(self, expected: float) -> list[Ref]:
        """The newest samples that this cycle looks at, and which `training` leaves out until the next call.

        Training samples that no draft was trained on, each with something to predict. expected: tokens that the cycle
        will train on; see `looked_at` in adaptation.early_stop.
        """
        self.count_trained()
        new = [info for info in self._listed("train", _NEWEST) if not info.times_trained and predicted(info)]
        self._held_back = new[: looked_at([info.tokens for info in new], expected)]
        return [Ref(info.tokens, lambda info=info: self._read(info), info) for info in self._held_back]

    def looked_at(self) -> None:
        """What was held back had a part in which weights were kept: it counts as trained on."""
        self.trained(self._held_back)

    def token_counts(self, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
        """(recent, old): how often the target said each of its tokens [vocab_size], in the samples of `training()`."""
        fresh, old = self._training()
        reader = self._spool
        recent_ids = [reader.generated_tokens(info) for info in fresh] if reader is not None else []
        return _counted(recent_ids, vocab_size), _counted([kept.generated_tokens() for kept in old], vocab_size)

    def held_out(self, since: float) -> tuple[list[Ref], list[Ref]]:
        """(newest, old) samples that no draft was trained on, at most `gate_samples` of each.

        since: unix seconds when the served draft was made; see `gate.recent_count`.
        """
        count = self._config.gate_samples
        newest = self._listed("held_out", count)
        newest = newest[: recent_count([info.created for info in newest], since)]
        old = self._old("held_out", newest)
        return (
            [Ref(info.tokens, lambda info=info: self._read(info)) for info in newest],
            [Ref(kept.info.tokens, lambda kept=kept: self._usable(kept.read())) for kept in old[:count]],
        )

    def left_out(self) -> str:
        """In words, what was found unusable since the last call; "" where nothing was."""
        found, self._untold = self._untold, 0
        why = "states that are not finite, or tokens that the target has not"
        return f"{many(found, 'sample')} left out: {why}" if found else ""

    def _training(self) -> tuple[list[SampleInfo], list[StoredSample]]:
        self._forget_expired()
        listed, held_back = self._listed("train", _NEWEST), {_key(info) for info in self._held_back}
        fresh = [info for info in listed if _key(info) not in held_back]
        return fresh, self._old("train", [*listed, *self._held_back])

    def _old(self, split: str, fresh: list[SampleInfo]) -> list[StoredSample]:
        """What the reservoir has besides `fresh`."""
        keys = {_key(info) for info in fresh}
        return [one for one in self._reservoir.samples() if one.info.split == split and _key(one.info) not in keys]

    def _forget_expired(self) -> None:
        if self._config.retention_hours is not None:
            erase_expired(self._config.spool / RESERVOIR_FOLDER, self._config.retention_hours * 3600)

    def offer(self, refs: Iterable[Ref]) -> None:
        """Reads those that the reservoir was not offered yet: of samples that other processes train on."""
        for ref in refs:
            if isinstance(ref.source, SampleInfo) and ref.source.id not in self._offered:
                ref.read()

    def trained(self, samples: Iterable[SampleInfo]) -> None:
        """Notes one optimiser step over `samples`."""
        self._trained += samples

    def count_trained(self) -> None:
        """Counts on the disk what was noted; a full disk costs the counts, not the training."""
        if self._spool is not None and self._trained:
            oldest = self._spool.samples(oldest=1)
            with suppress(sqlite3.Error, OSError):
                count_trained(self._config.spool, self._trained, oldest[0].id if oldest else 0)
        self._trained.clear()

    def newest(self, count: int) -> list[Ref]:
        """The newest samples that no draft was trained on, of either split: what the present traffic is like.

        A draft is at its best on what it was trained on, and would be preferred on that to one that never saw it.
        """
        self.count_trained()
        return [Ref(info.tokens, lambda info=info: self._read(info)) for info in self._listed(None, count, trained=0)]

    def _listed(self, split: str | None, newest: int, trained: int | None = None) -> list[SampleInfo]:
        """trained: only those that were trained on at most so often."""
        if self._spool is None:
            if not (self._config.spool / INDEX_FILE).is_file():
                return []  # nothing has been captured yet
            self._spool = SpoolReader.open(self._config.spool)
        return self._spool.samples(split=split, newest=newest, times_trained_max=trained)

    def _read(self, info: SampleInfo) -> Sample | None:
        assert self._spool is not None  # `info` came from it
        sample = self._usable(self._spool.read(info))
        if sample is not None and info.id not in self._offered:
            self._offered.add(info.id)
            if self._reservoir.offer(sample) and not self._spool.holds(info):
                # Erased after it was read, perhaps: the reservoir's turn comes after the ring's, but may have been
                # before this copy was made.
                with suppress(OSError):
                    erase_kept(self._config.spool / RESERVOIR_FOLDER, lambda *one: one == (info.id, info.created))
        return sample

    def _usable(self, sample: Sample | None) -> Sample | None:
        """The sample, None where nothing can be learned from it: one value that is not finite spoils all weights."""
        if sample is None or sample.is_usable(self._vocab_size):
            return sample
        self._untold += _key(sample.info) not in self._unusable
        self._unusable.add(_key(sample.info))
        return None


def _key(info: SampleInfo) -> tuple[int, int]:
    """What names a sample: ids begin anew in a new spool."""
    return info.id, info.checksum


def _counted(samples: Iterable[np.ndarray | None], vocab_size: int) -> np.ndarray:
    counts = np.zeros(vocab_size, np.int64)
    for ids in samples:
        if ids is not None:
            counts += np.bincount(ids[(ids >= 0) & (ids < vocab_size)], minlength=vocab_size)
    return counts
