"""Optimiser steps of one process, and of several that train together, each on a GPU of its own.

The worker is the first of them; the others are its children, of its process group, and die with it. In each step every
process takes one batch of `batch_tokens`, so that a step covers as many batches as there are processes: one batch cut
into pieces would take hardly less time, as most of so short a step is not arithmetic, and a long sample cannot be cut.
Each gradient is weighted so that their sum is that of one process over all of these samples; then every process takes
the same step of the optimiser.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tide_cli import exec_child
from tide_cli.errors import reason
from tide_cli.spool.samples import SampleInfo
from tide_cli.training.batches import Ref
from tide_cli.training.config import TrainingConfig
from tide_cli.training.exchange import (
    Apply,
    Begin,
    Failed,
    Follow,
    Part,
    Share,
    join,
    leave,
    send_tensors,
    sum_gradients,
)
from tide_cli.training.shares import gradient_weights, own_share, whole_step
from tide_cli.training.state import state_tensors
from tide_cli.training.trainer import DraftTrainer, Gradient, Step
from tide_cli.training.worker import MEMORY_REMEDY, NoMemoryError, TeamError

_STORE = "helpers"  # the file by which the processes find each other, in the trainer's state folder
_POLL = 0.0005  # seconds between two looks at a collective
_ENDING = 5.0  # seconds that a helper has to end by itself

Taken = tuple[Step, list[list[SampleInfo]]]  # a step, and the samples of each process that it was taken on


class Alone:
    """This process trains by itself."""

    def meet(self) -> None:
        """The trainer is made."""

    def begin(self, trainer: DraftTrainer) -> None:
        """A cycle begins."""

    def step(self, trainer: DraftTrainer, batches: Sequence[Sequence[Ref]]) -> Taken | None:
        """One optimiser step on the one batch; None where none of its samples can be read any more."""
        samples = [sample for ref in batches[0] if (sample := ref.read()) is not None]
        if not samples:
            return None
        return trainer.step(samples), [[sample.info for sample in samples]]

    def close(self) -> None:
        """No step follows."""


class Team:
    """`config.processes` processes, as their worker sees them. To be made on the main thread: helpers die with that.

    TeamError from all but `close` where a helper has died, fails or does not answer within `process_timeout`.
    """

    def __init__(self, config: TrainingConfig, draft: Path, offer: Callable[[Iterable[Ref]], None]) -> None:
        """Start the helpers, which begin to load `draft`. offer: is given the samples that they read."""
        self._config, self._offer = config, offer
        self._store = config.state / _STORE
        self._store.unlink(missing_ok=True)
        self._helpers = [_Helper(config, rank) for rank in range(1, config.processes)]
        with self._together():
            self._tell(*[Begin(config, draft, self._store)] * len(self._helpers))

    def meet(self) -> None:
        """Wait for the helpers; to be called once, before a cycle begins."""
        with self._together():
            self._answers()
            joined: Future[None] = Future()
            threading.Thread(target=self._join, args=[joined], name="join", daemon=True).start()
            self._until(joined.done, time.monotonic() + self._config.process_timeout)
            joined.result()

    def begin(self, trainer: DraftTrainer) -> None:
        """A cycle begins: the helpers take this trainer's weights, and what its optimiser knows."""
        with self._together():
            tensors, steps = state_tensors(trainer)
            kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
            self._tell(*[Follow(trainer.folder, kinds, steps)] * len(self._helpers))
            self._answers()
            self._finish(send_tensors(tensors.values()))

    def step(self, trainer: DraftTrainer, batches: Sequence[Sequence[Ref]]) -> Taken | None:
        """One optimiser step on at most one batch for each process; None where no sample can be read any more.

        NoMemoryError where a process has too little memory for its batch: none of them has taken the step.
        """
        own, others = batches[0], batches[1:]
        with self._together():
            shares = [Share([ref.source for ref in batch]) for batch in others]
            self._tell(*shares, *[Share([])] * (len(self._helpers) - len(shares)))
            samples = [sample for ref in own if (sample := ref.read()) is not None]
            gradient = own_share(trainer, samples)
            for batch in others:
                self._offer(batch)
            answers: list[Part] = self._answers()
            gradients = self._whole([gradient, *(part.gradient for part in answers)])
            if not (weights := gradient_weights(gradients)):
                return None
            self._tell(*map(Apply, weights[1:]))
            self._finish(sum_gradients(trainer, weights[0]))
            trainer.apply_gradients()
        infos = [[sample.info for sample in samples]]
        for batch, part in zip(others, answers, strict=False):
            infos.append([ref.info for ref, read in zip(batch, part.read, strict=True) if read])
        return whole_step(gradients, weights), infos

    def close(self) -> None:
        """End the helpers, by force where they do not by themselves."""
        for helper in self._helpers:
            helper.hang_up()
        leave()
        for helper in self._helpers:
            helper.end()
        self._store.unlink(missing_ok=True)

    def _tell(self, *commands: Any) -> None:
        """One to each helper."""
        for helper, command in zip(self._helpers, commands, strict=True):
            helper.send(command)

    def _answers(self) -> list[Any]:
        """One of each helper."""
        bound = self._config.process_timeout
        deadline = time.monotonic() + bound
        return [helper.answer(deadline, bound) for helper in self._helpers]

    def _whole(self, gradients: Sequence[Gradient | None]) -> list[Gradient]:
        """All of them; NoMemoryError, naming who lacks one."""
        names = ["the first training process", *(helper.name for helper in self._helpers)]
        if lacking := [name for name, one in zip(names, gradients, strict=True) if one is None]:
            why = f"too little memory for a batch in {', '.join(lacking)}"
            raise NoMemoryError("a training step was left out", why=why, remedy=MEMORY_REMEDY)
        return [one for one in gradients if one is not None]

    def _join(self, joined: Future[None]) -> None:
        """On a thread of its own: nothing bounds it, and a helper may die meanwhile."""
        try:
            join(self._config, 0, self._store)
            joined.set_result(None)
        except Exception as error:
            joined.set_exception(error)

    def _finish(self, works: Sequence[dist.Work]) -> None:
        """Wait for collectives that every process has entered or is about to enter."""
        deadline = time.monotonic() + self._config.process_timeout
        for work in works:
            self._until(work.is_completed, deadline)
            work.wait()

    def _until(self, done: Callable[[], bool], deadline: float) -> None:
        """Wait for what all processes do together, until that monotonic second."""
        while not done():
            self._look()
            if time.monotonic() > deadline:
                names = ", ".join(helper.name for helper in self._helpers)
                raise TeamError(f"no exchange of tensors within {self._config.process_timeout:g} s with {names}")
            time.sleep(_POLL)

    def _look(self) -> None:
        for helper in self._helpers:
            helper.look()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What goes wrong in here leaves the processes at different places."""
        try:
            yield
        except (TeamError, NoMemoryError):
            raise
        except Exception as error:
            deadline = time.monotonic() + _ENDING
            while time.monotonic() < deadline:  # a broken collective is news before the end of who broke it
                self._look()
                time.sleep(_POLL)
            raise TeamError(f"training with {self._config.processes} processes failed", why=reason(error)) from error


class _Helper:
    """One of the other processes. rank: from 1."""

    def __init__(self, config: TrainingConfig, rank: int) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            program = [sys.executable, "-m", "tide_cli.training", "helper"]
            program += ["--rank", str(rank), "--pipe", str(theirs.fileno())]
            self._process = subprocess.Popen(
                exec_child.bound(sorted(os.sched_getaffinity(0)), program),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        where = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if config.device == "cuda" else []
        gpu = f" on GPU {where[rank]}" if rank < len(where) else ""
        self.name = f"training process {rank + 1} of {config.processes}{gpu} (pid {self._process.pid})"

    def send(self, command: Any) -> None:
        try:
            self._pipe.send(command)
        except OSError:
            raise self._gone() from None

    def answer(self, deadline: float, bound: float) -> Any:
        """What it says next, until that monotonic second; bound: how many seconds it had."""
        try:
            if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
                raise TeamError(f"{self.name} did not answer within {bound:g} s")
            said = self._pipe.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        if isinstance(said, Failed):
            raise TeamError(f"{self.name} failed", why=said.why)
        return said

    def look(self) -> None:
        """TeamError where it has ended or failed."""
        ended = self._process.poll() is not None
        if self._pipe.poll():  # its last words, for it was asked for none
            self.answer(time.monotonic(), 0.0)
        if ended:
            raise self._gone()

    def hang_up(self) -> None:
        """It ends by itself."""
        self._pipe.close()

    def end(self) -> None:
        """Wait for its end, and bring it about."""
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _gone(self) -> TeamError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        code = self._process.returncode
        if code is None:
            return TeamError(f"{self.name} does not listen any more")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return TeamError(f"{self.name} has ended ({how})")
