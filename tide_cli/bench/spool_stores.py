"""The contestants of `tide bench spool`: the spool, a plain memcpy into a mapped file, LMDB. None of them syncs.

They store the same traffic with the same bytes, keep about the same amount of it, and lie in files of one folder that
were written from end to end before anything is timed, so that all of them are in the page cache.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from tide_cli.bench.spool_traffic import PROMPT, Forward, Request, Traffic
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.running import Part
from tide_cli.spool.writer import SpoolWriter

LMDB_SPACE = 4  # times the size that LMDB's file may take: freed pages are not always reused at once
_BLOCK = 4 * 2**20  # bytes a plain memcpy reads at a time


@dataclass
class Timing:
    """Bytes of states moved, wall seconds, CPU seconds of the thread that moved them."""

    size: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def mb_s(self) -> float:
        """Megabytes (10^6 bytes) per second."""
        return self.size / self.seconds / 1e6

    @property
    def cpu_s_per_gib(self) -> float:
        return self.cpu / self.size * 2**30


class Store(Protocol):
    """Something that keeps the newest of what it is given."""

    def write(self, traffic: Traffic) -> dict[str, Timing]:
        """Stores all of it: {"write"}, and of it {"prefill", "decode"} where a store is told forward by forward."""

    def read(self) -> Timing:
        """Copies everything that is kept into fresh memory."""

    def close(self) -> None: ...


@contextmanager
def _timed(size: int) -> Iterator[Timing]:
    timing, cpu, begun = Timing(size), time.thread_time(), time.perf_counter()
    yield timing
    timing.seconds, timing.cpu = time.perf_counter() - begun, time.thread_time() - cpu


def _written(traffic: Traffic, forwards: Iterable[tuple[Forward, float]]) -> dict[str, Timing]:
    """Runs through `forwards`, which yields each one with its seconds, and adds up."""
    row = 8 * traffic.final.shape[1]
    parts = {"prefill": Timing(), "decode": Timing()}
    with _timed(traffic.state_bytes) as whole:
        for forward, seconds in forwards:
            part = parts["decode" if forward.puts[0].start else "prefill"]
            part.size, part.seconds = part.size + forward.rows * row, part.seconds + seconds
    return {"write": whole, **parts}


class SpoolStore:
    """SpoolWriter and SpoolReader, called as capture and the trainer call them."""

    def __init__(self, folder: Path, hidden: int, size_bytes: int) -> None:
        layout = RowLayout(hidden_size=hidden, target="made-up")
        self._writer = SpoolWriter.open(
            folder, layout, size_bytes, run="bench", max_sample_tokens=4096, held_out_share=0.2
        )
        self._reader = SpoolReader.open(folder)
        self.folder = folder
        self._passes = 0

    def write(self, traffic: Traffic) -> dict[str, Timing]:
        return _written(traffic, self.put(traffic))

    def put(
        self,
        traffic: Traffic,
        before: Callable[[Forward], None] = lambda forward: None,
        finished: Callable[[float], None] = lambda seconds: None,
    ) -> Iterator[tuple[Forward, float]]:
        """Stores the traffic; yields each forward and the seconds of its put_forward.

        before: called first; finished: called with the seconds of each finish.
        """
        self._passes += 1
        for forward in traffic.forwards:
            before(forward)
            begun, pool = time.perf_counter(), forward.pool
            parts = [
                Part(
                    put.request.rid,
                    put.start,
                    put.offset - pool.start,
                    put.count,
                    None if put.start else self._tokens(put.request)[:PROMPT],
                )
                for put in forward.puts
            ]
            self._writer.put_forward(parts, traffic.aux[pool], traffic.final[pool])
            yield forward, time.perf_counter() - begun
            for request in forward.finished:
                ids, begun = self._tokens(request).tolist(), time.perf_counter()
                stored = self._writer.finish(
                    request.rid, ids, PROMPT, draft_version=0, verify_steps=1, accepted_tokens=0
                )
                finished(time.perf_counter() - begun)
                if stored is None:
                    raise RuntimeError(f"the spool dropped a request: {self._writer.counters()}")

    def _tokens(self, request: Request) -> np.ndarray:
        """Other ones in each pass: the spool would take the rows of a prompt that it knows for the same rows."""
        tokens = request.tokens.copy()
        tokens[0] = self._passes
        return tokens

    def read(self) -> Timing:
        samples = self._reader.samples()
        row = 8 * self._reader.layout.hidden_size
        with _timed(sum(info.tokens for info in samples) * row) as timing:
            for info in samples:
                if self._reader.read(info) is None:
                    raise RuntimeError(f"sample {info.id} could not be read back")
        return timing

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class MemcpyStore:
    """The bound: the rows of each call copied into a mapped file, one call's behind the other's, and nothing else."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        folder.mkdir()
        file = os.open(folder / "file.bin", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(file, 0, size_bytes)
            self._map = mmap.mmap(file, size_bytes)
        finally:
            os.close(file)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._end = 0

    def write(self, traffic: Traffic) -> dict[str, Timing]:
        return _written(traffic, self._copy(traffic))

    def _copy(self, traffic: Traffic) -> Iterator[tuple[Forward, float]]:
        aux, final = _as_bytes(traffic.aux), _as_bytes(traffic.final)
        for forward in traffic.forwards:
            begun = time.perf_counter()
            for put in forward.puts:
                rows = slice(put.offset, put.offset + put.count)
                self._append(aux[rows])
                self._append(final[rows])
            yield forward, time.perf_counter() - begun

    def _append(self, rows: np.ndarray) -> None:
        if self._end + rows.size > len(self._bytes):
            self._end = 0
        self._bytes[self._end : self._end + rows.size] = rows.reshape(-1)
        self._end += rows.size

    def read(self) -> Timing:
        with _timed(len(self._bytes)) as timing:
            for offset in range(0, len(self._bytes), _BLOCK):
                self._bytes[offset : offset + _BLOCK].copy()
        return timing

    def close(self) -> None:
        del self._bytes
        self._map.close()


class LmdbStore:
    """LMDB without syncs: a transaction for each forward, the rows of each call two records, aux and final.

    writemap: LMDB writes into its map, which is its fastest way; else it writes pages with system calls, its default.
    The oldest requests are deleted so that at most `size_bytes` are kept.
    """

    def __init__(self, folder: Path, size_bytes: int, *, writemap: bool) -> None:
        import lmdb

        folder.mkdir()
        self._size = size_bytes
        self._env: Any = lmdb.open(
            str(folder), map_size=LMDB_SPACE * size_bytes, writemap=writemap, map_async=True, sync=False, metasync=False
        )
        self._kept: deque[tuple[list[bytes], int]] = deque()
        self._held = self._requests = 0

    def write(self, traffic: Traffic) -> dict[str, Timing]:
        aux, final = _as_bytes(traffic.aux), _as_bytes(traffic.final)
        row, running = 8 * traffic.final.shape[1], dict[str, list[bytes]]()
        with _timed(traffic.state_bytes) as timing:
            for forward in traffic.forwards:
                with self._env.begin(write=True) as transaction:
                    for put in forward.puts:
                        if put.request.rid not in running:
                            self._requests += 1
                            running[put.request.rid] = [struct.pack(">Q", self._requests)]
                        key = running[put.request.rid][0] + struct.pack(">I", put.start)
                        rows = slice(put.offset, put.offset + put.count)
                        self._make_room(transaction, put.count * row)
                        transaction.put(key + b"a", aux[rows])
                        transaction.put(key + b"f", final[rows])
                        running[put.request.rid] += [key + b"a", key + b"f"]
                    for request in forward.finished:
                        self._kept.append((running.pop(request.rid)[1:], request.rows * row))
        return {"write": timing}

    def _make_room(self, transaction: Any, size: int) -> None:
        self._held += size
        while self._held > self._size and self._kept:
            keys, freed = self._kept.popleft()
            for key in keys:
                transaction.delete(key)
            self._held -= freed

    def read(self) -> Timing:
        with _timed(sum(size for _, size in self._kept)) as timing, self._env.begin(buffers=True) as transaction:
            for keys, _ in self._kept:
                for key in keys:
                    np.frombuffer(transaction.get(key), np.uint8).copy()
        return timing

    def close(self) -> None:
        self._env.close()


def has_lmdb() -> bool:
    from importlib.util import find_spec

    return find_spec("lmdb") is not None


def _as_bytes(tensor: Tensor) -> np.ndarray:
    """The tensor's memory: [rows, bytes] uint8."""
    return tensor.view(torch.uint8).numpy()
