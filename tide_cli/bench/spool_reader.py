"""`python -m tide_cli.bench.spool_reader FOLDER slow|stopped PARENT`: a reader as much in the way as one can be.

It has the ring mapped and a transaction of the index open, so that no checkpoint gets past it. `slow` reads sample
after sample with pauses, and begins a new transaction now and then; `stopped` stops itself (SIGSTOP) in the middle.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from tide_cli.exec_child import bind_life
from tide_cli.spool.index import INDEX_FILE
from tide_cli.spool.reader import SpoolReader

_PAUSE = 0.02  # seconds between two samples
_SAMPLES = 20  # read in one transaction


def main(folder: Path, how: str, parent: int) -> NoReturn:
    bind_life(parent, int(signal.SIGKILL))  # one that is stopped cannot see its parent go
    with (
        closing(SpoolReader.open(folder)) as reader,
        closing(sqlite3.connect(folder / INDEX_FILE, isolation_level=None)) as index,
    ):
        first = True
        while True:
            index.execute("begin")
            index.execute("select count(*) from samples").fetchone()  # now it reads
            for info in reader.samples(newest=_SAMPLES):
                reader.read(info)
                if first:
                    print("reading", flush=True)
                    first = False
                    if how == "stopped":
                        os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(_PAUSE)
            index.execute("commit")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
