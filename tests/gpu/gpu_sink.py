"""What stands behind the capture: the spool's writer where it can be imported, and one that looks at every row."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from gpu_rows import token, wrong_rows
from torch import Tensor

from tide_cli.engine.plugin.capture import Capture
from tide_cli.engine.plugin.side_thread import start_side_thread
from tide_cli.engine.plugin.staging import Staging
from tide_cli.spool.running import Part

RING = 4 * 2**30  # bytes


class VerifyingWriter:
    """Takes the calls of a SpoolWriter and looks at every row that would be stored.

    rows, wrong: looked at, and not what they ought to be. gaps: parts that do not follow what was there. refused: by
    cause. complete: requests that ended with a row for each of their tokens but the last. open: while it is not set,
    nothing is taken.
    """

    fill = 0.0

    def __init__(self) -> None:
        self.rows = self.wrong = self.gaps = 0
        self.complete: list[str] = []
        self.refused: dict[str, int] = {}
        self.open = threading.Event()
        self.open.set()
        self._ends: dict[str, int] = {}
        self._gone: set[str] = set()

    def put_forward(self, parts: Sequence[Part], aux: Tensor, final: Tensor) -> None:
        self.open.wait()
        for rid, start, offset, count, _ in parts:
            if rid in self._gone:
                continue
            rows = slice(offset, offset + count)
            self.wrong += wrong_rows(aux[rows], final[rows], int(rid[1:]), range(start, start + count))
            self.rows += count
            self.gaps += start != self._ends.get(rid, 0)
            self._ends[rid] = start + count

    def finish(self, rid: str, tokens: Sequence[int], prompt_tokens: int, **figures: object) -> None:
        if rid not in self._gone and self._ends.get(rid, 0) >= len(tokens) - 1:
            self.complete.append(rid)
        self._gone.discard(rid)
        self._ends.pop(rid, None)

    def refuse(self, rid: str, cause: str) -> None:
        if rid not in self._gone:
            self._gone.add(rid)
            self.refused[cause] = self.refused.get(cause, 0) + 1

    def abort(self, rid: str) -> None:
        self._gone.discard(rid)
        self._ends.pop(rid, None)

    def wipe(self, size_bytes: int) -> bool:
        return False

    def expire(self) -> None: ...

    def counters(self) -> dict[str, int]:
        return {f"dropped_{cause}": count for cause, count in self.refused.items()}


class CopyingWriter(VerifyingWriter):
    """Looks at nothing: rows are copied once, as into the pages of a ring. What that costs is all it should cost."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self._page = torch.empty(8192, 4 * hidden, dtype=torch.bfloat16)

    def put_forward(self, parts: Sequence[Part], aux: Tensor, final: Tensor) -> None:
        for rid, _, offset, count, _ in parts:
            if rid not in self._gone:
                self._page[:count, : aux.shape[1]].copy_(aux[offset : offset + count])
                self._page[:count, aux.shape[1] :].copy_(final[offset : offset + count])
                self.rows += count


def spool_writer(folder: Path, hidden: int, size: int = RING):
    """A new SpoolWriter in `folder`; None where a package of its index is not installed."""
    try:
        from tide_cli.spool.writer import SpoolWriter
    except ModuleNotFoundError:
        return None
    from tide_cli.spool.layout import RowLayout

    layout = RowLayout(hidden_size=hidden, target="check")
    return SpoolWriter.open(folder, layout, size, run="check", max_sample_tokens=4096, held_out_share=0.2)


def stored_rows(folder: Path) -> dict[str, int]:
    """The newest samples and rows of a spool, and how many rows or tokens are not those of their request."""
    from tide_cli.spool.reader import SpoolReader

    reader = SpoolReader.open(folder)
    found = {"samples": 0, "rows": 0, "wrong": 0}
    numbers = {token(request, 0): request for request in range(1, 20_000)}
    for info in reader.samples(newest=64):
        sample = reader.read(info)
        found["samples"] += 1
        if sample is None:
            found["wrong"] += info.tokens
            continue
        request, positions = numbers[int(sample.tokens[0])], range(info.tokens)
        found["rows"] += info.tokens
        found["wrong"] += wrong_rows(sample.aux, sample.final, request, positions)
        found["wrong"] += sample.tokens.tolist() != [token(request, position) for position in positions]
    reader.close()
    return found


def start_capture(writer, staging: Staging, folder: Path) -> Capture:
    """As `Capture.start` does, around a writer and a staging of the check's own. Its thread ends with the process."""
    made = Capture(writer, staging, max_in_flight=10_000, folder=folder)
    start_side_thread("tide-capture", made._write_forever)
    return made


def drain(capture: Capture, most: int = 0) -> None:
    """Wait until what was put is written; most: bytes that may go on waiting."""
    end = time.monotonic() + 120
    while waiting(capture) > most:
        if time.monotonic() > end or capture._failure:
            raise RuntimeError(f"the capture's thread does not come to its end: {capture._failure or 'it hangs'}")
        time.sleep(0.001)
    if not most:
        time.sleep(0.05)  # the last request's end


def waiting(capture: Capture) -> int:
    """Bytes of states that wait; the items in the queue where these are none."""
    return capture._bytes_put - capture._bytes_taken or capture._queue.qsize()
