"""A process that trains with the worker, on a GPU of its own: it does what the worker says and decides nothing."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import torch

from tide_cli.errors import TideError
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import StoredSample
from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.training.exchange import (
    READY,
    Apply,
    Begin,
    Failed,
    Follow,
    Kinds,
    Part,
    Share,
    join,
    leave,
    place,
    receive_tensors,
    sum_gradients,
)
from tide_cli.training.material import Source
from tide_cli.training.shares import own_share
from tide_cli.training.state import take_state
from tide_cli.training.target_weights import read_config
from tide_cli.training.trainer import DraftTrainer


def run(rank: int, descriptor: int) -> int:
    """Serve the worker at the other end of the pipe until that is closed. Returns the exit code.

    rank: of this process among those that train together; the worker's is 0.
    """
    worker = Connection(descriptor)
    try:
        _Helper(rank, worker.recv(), worker).serve()
    except (EOFError, ConnectionError):  # the worker has closed it, or is gone
        leave()
        return 0
    except Exception as error:
        traceback.print_exc()
        with suppress(OSError):
            worker.send(Failed("; ".join(error.lines()) if isinstance(error, TideError) else repr(error)))
        os._exit(1)  # an orderly end could wait for a collective that the others do not enter any more


class _Helper:
    def __init__(self, rank: int, begin: Begin, worker: Connection) -> None:
        self._config, self._worker = replace(begin.config, device=place(begin.config, rank)), worker
        torch.set_num_threads(self._config.threads)
        if begin.config.device == "cuda":
            torch.cuda.set_device(self._config.device)
        self._trainer = DraftTrainer(self._config, begin.draft)
        self._vocab_size: int = read_config(self._config.target)["vocab_size"]
        self._spool: SpoolReader | None = None
        worker.send(READY)
        join(begin.config, rank, begin.store)

    def serve(self) -> NoReturn:
        """EOFError when the worker has no more to say."""
        while True:
            match self._worker.recv():
                case Follow(draft, kinds, steps):
                    self._follow(draft, kinds, steps)
                case Share(sources):
                    self._worker.send(self._part(sources))
                case Apply(weight):
                    for work in sum_gradients(self._trainer, weight):
                        work.wait()
                    self._trainer.apply_gradients()

    def _follow(self, draft: Path, kinds: Kinds, steps: int) -> None:
        if draft != self._trainer.folder:
            del self._trainer  # there may be no room for two
            self._trainer = DraftTrainer(self._config, draft)
        self._trainer.renew_optimizer()
        self._worker.send(READY)
        take_state(self._trainer, receive_tensors(kinds, self._trainer.device), steps)

    def _part(self, sources: Sequence[Source]) -> Part:
        found = [self._read(source) for source in sources]
        samples = [sample for sample in found if sample is not None]
        return Part([sample is not None for sample in found], own_share(self._trainer, samples))

    def _read(self, source: Source) -> Sample | None:
        sample = source.read() if isinstance(source, StoredSample) else self._from_ring(source)
        return sample if sample is not None and sample.is_usable(self._vocab_size) else None

    def _from_ring(self, info: SampleInfo) -> Sample | None:
        if self._spool is None:
            self._spool = SpoolReader.open(self._config.spool)
        return self._spool.read(info)
