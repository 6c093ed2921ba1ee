"""`tide bench spool`: how fast the spool takes rows in and gives them back, beside a plain memcpy and LMDB."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.report import filesystem_of
from tide_cli.bench.rounds import Spread, in_turns, ratios
from tide_cli.bench.scratch import scratch_folder, sweep
from tide_cli.bench.spool_readers import writer_calls
from tide_cli.bench.spool_stores import LMDB_SPACE, LmdbStore, MemcpyStore, SpoolStore, Store, Timing, has_lmdb
from tide_cli.bench.spool_traffic import Forward, Traffic, least_size, make_traffic
from tide_cli.errors import TideError, UsageError, reason
from tide_cli.spool.layout import row_bytes

_LEAST_ROUNDS = 3

_FIRST = ("hidden_size", "row_bytes", "ingest_mb_s", "memcpy_mb_s", "lmdb_mb_s")

Tick = Callable[[float, float], None]


@dataclass(frozen=True)
class SpoolBench:
    """seconds: of measuring in all, the making of files not counted. size: bytes of each store. rate: tokens/s."""

    seconds: float
    size: int
    hidden: Sequence[int]
    rate: float
    folder: Path | None = None

    def run(self, tick: Tick) -> list[dict[str, Any]]:
        """One object for each hidden size; see `_figures`. Nothing is left behind.

        KeyboardInterrupt: after INT, TERM or HUP.

        UsageError: a size too small. TideError: no room in the folder.
        """
        self.check()
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # one thread for everybody, as the capture thread is one
        try:
            with Interrupts() as interrupts, scratch_folder(within=self.folder) as scratch, interrupts.allowed():
                return [self._one(hidden, scratch, place, tick) for place, hidden in enumerate(self.hidden)]
        except OSError as error:
            raise TideError(
                "the benchmark cannot write its files", why=reason(error), remedy="name another place with --folder"
            ) from None
        finally:
            torch.set_num_threads(threads)

    def check(self) -> None:
        """UsageError or TideError where `run` would not begin."""
        for hidden in self.hidden:
            if hidden < 4 or hidden % 4:
                raise UsageError(f"--hidden {hidden} is not a hidden size", why="it must be a positive multiple of 4")
            if self.size < least_size(hidden):
                raise UsageError(
                    f"--size {self.size} is too small for rows of hidden size {hidden}",
                    remedy=f"{least_size(hidden)} bytes are needed at least",
                )
        folder = self.folder or Path(tempfile.gettempdir())
        if not folder.is_dir():
            raise UsageError(f"--folder {folder} is not a folder")
        needed = self.size * (2 + (2 * LMDB_SPACE if has_lmdb() else 0))
        sweep(self.folder)  # what a killed run has left takes room, too
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise TideError(
                f"there is too little room in {folder}",
                why=f"the stores may take {needed} bytes, {free} are free",
                remedy="choose a smaller --size, or another place with --folder",
            )

    def _one(self, hidden: int, scratch: Path, place: int, tick: Tick) -> dict[str, Any]:
        share = self.seconds / len(self.hidden)
        turns, paced, readers = share / 2, share / 4, share / 4
        traffic = make_traffic(hidden, self.size // 3)
        with ExitStack() as stack:

            def opened(store: Any) -> Any:
                return stack.enter_context(closing(store))

            here = scratch / str(hidden)
            here.mkdir()
            stack.callback(shutil.rmtree, here, ignore_errors=True)  # after every store has let go of its files
            spool = opened(SpoolStore(here / "spool", hidden, self.size))
            stores: dict[str, Store] = {"spool": spool, "memcpy": opened(MemcpyStore(here / "memcpy", self.size))}
            if has_lmdb():
                stores["lmdb"] = opened(LmdbStore(here / "lmdb", self.size, writemap=False))
                stores["lmdb_writemap"] = opened(LmdbStore(here / "lmdb_writemap", self.size, writemap=True))
            for store in stores.values():
                for _ in range(2 + self.size // traffic.state_bytes):  # every page of every file is touched
                    store.write(traffic)
                store.read()
            writes, reads = _measure(stores, traffic, turns, lambda spent: tick(place * share + spent, self.seconds))
            group = make_traffic(hidden, 0, seed=1)

            def spent_after(part: float) -> Callable[[float], None]:
                return lambda spent: tick(place * share + part + spent, self.seconds)

            pace = _paced(spool, group, self.rate, paced, spent_after(turns))
            calls = writer_calls(spool, group, self.rate, readers, spent_after(turns + paced))
        return {
            "hidden_size": hidden,
            "row_bytes": row_bytes(hidden),
            "store_bytes": self.size,
            "round_bytes": traffic.state_bytes,
            "rounds": len(writes),
            "filesystem": filesystem_of(scratch),
            **_figures(writes, reads),
            "paced": pace,
            "writer_call_ms": calls,
        }


def spool_report(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{hidden_size, row_bytes, ingest_mb_s, memcpy_mb_s, lmdb_mb_s: of the first hidden size; by_hidden_size: all that
    `SpoolBench.run` gives}."""
    return {name: results[0][name] for name in _FIRST} | {"by_hidden_size": list(results)}


def _measure(
    stores: dict[str, Store], traffic: Traffic, seconds: float, tick: Callable[[float], None]
) -> tuple[list[dict[str, dict[str, Timing]]], list[dict[str, Timing]]]:
    """Rounds of writing and of reading: [{store: {part: Timing}}], [{store: Timing}]."""

    def turn(store: Store) -> tuple[dict[str, Timing], Timing]:
        written, read = store.write(traffic), store.read()
        tick(min(seconds, time.monotonic() - begun))
        return written, read

    begun = time.monotonic()
    contestants = {name: (lambda store=store: turn(store)) for name, store in stores.items()}
    rounds = list(in_turns(contestants, seconds=seconds, least=_LEAST_ROUNDS, clock=time.monotonic))
    return (
        [{name: written for name, (written, _) in results.items()} for results in rounds],
        [{name: read for name, (_, read) in results.items()} for results in rounds],
    )


def _figures(writes: list[dict[str, dict[str, Timing]]], reads: list[dict[str, Timing]]) -> dict[str, Any]:
    """Medians by name, and under "spread" the quartiles around them; None where LMDB is not installed.

    ingest_mb_s, of it ingest_prefill_mb_s and ingest_decode_mb_s; memcpy_mb_s, lmdb_mb_s, lmdb_writemap_mb_s;
    X_read_mb_s; X_cpu_s_per_gib, of writing; ingest_to_X, read_to_X,
    ingest_prefill_to_memcpy, ingest_decode_to_memcpy: ratios of the same rounds.
    """
    spreads: dict[str, Spread | None] = {}
    for name in ("spool", "memcpy", "lmdb", "lmdb_writemap"):
        label = "ingest" if name == "spool" else name
        there = name in writes[0]
        written = [results[name]["write"] for results in writes if there]
        read = [results[name] for results in reads if there]
        spreads[f"{label}_mb_s"] = Spread.of([timing.mb_s for timing in written]) if there else None
        spreads[f"{name}_read_mb_s"] = Spread.of([timing.mb_s for timing in read]) if there else None
        spreads[f"{name}_cpu_s_per_gib"] = Spread.of([timing.cpu_s_per_gib for timing in written]) if there else None
        if name != "spool":
            own = [results["spool"]["write"].mb_s for results in writes]
            spreads[f"ingest_to_{name}"] = ratios(own, [timing.mb_s for timing in written]) if there else None
            own = [results["spool"].mb_s for results in reads]
            spreads[f"read_to_{name}"] = ratios(own, [timing.mb_s for timing in read]) if there else None
    for part in ("prefill", "decode"):
        own = [results["spool"][part].mb_s for results in writes]
        spreads[f"ingest_{part}_mb_s"] = Spread.of(own)
        spreads[f"ingest_{part}_to_memcpy"] = ratios(own, [results["memcpy"][part].mb_s for results in writes])
    return {name: None if spread is None else spread.median for name, spread in spreads.items()} | {
        "spread": {name: None if spread is None else [spread.low, spread.high] for name, spread in spreads.items()}
    }


def _paced(
    spool: SpoolStore, traffic: Traffic, rate: float, seconds: float, tick: Callable[[float], None]
) -> dict[str, float]:
    """Tokens at a steady rate: {rate, tokens_s, mb_s, seconds, core_share, call_ms_p50, call_ms_p99, call_ms_max}.

    core_share: CPU time over wall time. calls: put_forward.
    """
    begun, cpu, tokens = time.monotonic(), time.thread_time(), 0
    calls: list[float] = []

    def wait(forward: Forward) -> None:
        nonlocal tokens
        time.sleep(max(0.0, begun + tokens / rate - time.monotonic()))
        tokens += forward.rows

    while not calls or time.monotonic() - begun < seconds:  # whole passes: no request is left running
        for _, spent in spool.put(traffic, before=wait):
            calls.append(spent)
        tick(min(seconds, time.monotonic() - begun))
    wall = time.monotonic() - begun
    p50, p99 = np.percentile(calls, (50, 99)) * 1e3
    return {
        "rate": rate,
        "tokens_s": tokens / wall,
        "mb_s": tokens * 8 * traffic.final.shape[1] / wall / 1e6,
        "seconds": wall,
        "core_share": (time.thread_time() - cpu) / wall,
        "call_ms_p50": float(p50),
        "call_ms_p99": float(p99),
        "call_ms_max": max(calls) * 1e3,
    }
