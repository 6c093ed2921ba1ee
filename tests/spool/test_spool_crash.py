"""A writer in a process of its own, killed while it writes, with a reader looking on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from spool_traffic import is_exact

import tide_cli
from tide_cli.spool.reader import SpoolReader

CHILD = Path(__file__).with_name("writing_child.py")


def run_and_kill(folder: Path, first_seed: int, lines: int) -> tuple[int, int]:
    """Kills a writer after some samples, reading all the while. Returns the last id and the number read."""
    environment = os.environ | {"PYTHONPATH": str(Path(tide_cli.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(CHILD), str(folder), str(first_seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    reader, last, read = None, 0, 0
    try:
        for _ in range(lines):
            line = child.stdout.readline()
            assert line, "the writer ended by itself"
            last = int(line)
            reader = reader or SpoolReader.open(folder)
            for info in reader.samples(newest=3):
                sample = reader.read(info)
                if sample is not None:
                    assert is_exact(sample)
                    read += 1
        assert reader.damaged == 0
    finally:
        child.kill()
        rest = child.communicate()[0].split()
        if reader is not None:
            reader.close()
    return int(rest[-1]) if rest else last, read


@pytest.mark.parametrize("lines", [1, 100])
def test_every_visible_sample_is_bit_exact_after_a_kill(folder: Path, open_writer, lines: int):
    chance, read = random.Random(lines), 0
    for round_ in range(2):
        reported, seen = run_and_kill(folder, (round_ + 1) * 100_000, lines + chance.randint(0, 20))
        read += seen
        for reopened in (False, True):
            writer = open_writer(pages=60) if reopened else None
            reader = SpoolReader.open(folder)
            infos = reader.samples()
            samples = [reader.read(info) for info in infos]
            assert all(is_exact(sample) for sample in samples if sample is not None)
            assert reader.damaged == 0
            assert infos[0].id >= reported
            assert infos[0].id <= reader.totals()["samples"]
            if reopened:  # rows whose pages went away are gone from the index too
                assert None not in samples
                pages = [page for info in infos for page in info.pages]
                assert len(pages) == len(set(pages))
                assert len(pages) + len(writer._free) == writer._ring.pages
                writer.close()
            reader.close()
    assert read > 0
