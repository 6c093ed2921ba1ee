"""A writer in a process of its own, killed while it writes, with a reader looking on."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spool_traffic import Conversations, is_of, leavings, prefix_rows
from writing_child import PAGES

import tide_cli
from tide_cli.spool.index import read_totals
from tide_cli.spool.reader import SpoolReader

CHILD = Path(__file__).with_name("writing_child.py")
ROUNDS = int(os.environ.get("TIDE_TEST_ROUNDS", "30"))  # kills; more of them hit more places


class Log:
    """What the writers said, over all rounds."""

    def __init__(self) -> None:
        self.texts: dict[int, list[int]] = {}
        self.stored: list[int] = []
        self.erased: set[int] = set()

    def take(self, line: str) -> None:
        said = json.loads(line)
        if "storing" in said:
            sample, text = said["storing"]
            self.texts[sample] = text
        self.stored += [said["stored"]] if "stored" in said else []
        self.erased.update(said.get("erasing", []))


def run_and_kill(folder: Path, seed: int, lines: int, log: Log) -> int:
    """Kills a writer after some lines, reading the newest sample now and then. Returns the number of samples read."""
    environment = os.environ | {"PYTHONPATH": str(Path(tide_cli.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(CHILD), str(folder), str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    reader, read = None, 0
    try:
        for number in range(lines):
            line = child.stdout.readline()
            assert line, "the writer ended by itself"
            log.take(line)
            if number % 8 == 1:
                reader = reader or SpoolReader.open(folder)
                for info in reader.samples(newest=2):
                    sample = reader.read(info)
                    if sample is not None and info.id in log.stored:  # else its lines are still to be read
                        assert is_of(sample, log.texts[info.id])
                        read += 1
        assert reader is None or reader.damaged == 0
    finally:
        child.kill()
        rest = child.communicate()[0]
        if reader is not None:
            reader.close()
    for line in rest.splitlines(keepends=True):
        if line.endswith("\n"):
            log.take(line)
    return read


def test_every_sample_is_bit_exact_after_a_kill_and_none_is_lost(folder: Path, open_writer):
    chance, log, read, shared = random.Random(ROUNDS), Log(), 0, 0
    for round_ in range(ROUNDS):
        read += run_and_kill(folder, round_ + 1, chance.randint(1, 90), log)
        reader = SpoolReader.open(folder)
        assert all(is_of(sample, log.texts[info.id]) for info in reader.samples() if (sample := reader.read(info)))
        assert reader.damaged == 0

        writer = open_writer(pages=PAGES)
        infos = reader.samples()
        samples = [reader.read(info) for info in infos]  # what went away is gone from the index, too
        assert all(sample is not None and is_of(sample, log.texts[sample.info.id]) for sample in samples)
        present = {info.id for info in infos}
        due = sorted(set(log.stored) - log.erased)
        kept = [sample for sample in due if sample in present]
        assert kept == due[len(due) - len(kept) :], "overwritten out of turn"
        last = reader.totals()["samples"]
        assert max(present, default=0) <= last
        log.texts = {sample: text for sample, text in log.texts.items() if sample <= last}  # the next one takes its id
        pages = [page for info in infos for page in info.pages]
        assert len(set(pages)) + writer._pages.free == PAGES
        writer.erase(lambda *_: False)
        assert leavings(folder) == 0
        shared += len(pages) - len(set(pages))
        reader.close()
        writer.close()
    assert read > 0
    assert shared > 0
    assert len(log.stored) > 3 * ROUNDS


class Stopped(BaseException):
    """In the place of a kill; a BaseException, so that nothing catches it."""


def stop_after(lines: int) -> Callable[..., Any]:
    """A trace function that raises Stopped when so many lines of the spool's modules have run."""
    left = lines

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if "/tide_cli/spool/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                raise Stopped
        return trace

    return trace


def test_a_ring_is_never_without_an_index(folder: Path, open_writer, monkeypatch: pytest.MonkeyPatch):
    """Its maker may be killed between the two."""

    def stop(*_: object, **__: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("tide_cli.spool.writer.Ledger.open", stop)
        with pytest.raises(Stopped):
            open_writer()
    assert (folder / "ring.bin").exists()
    assert read_totals(folder) == {}
    open_writer().close()

    (folder / "ring.bin").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("tide_cli.spool.ring.os.replace", stop)
        with pytest.raises(Stopped):
            open_writer()
    assert not (folder / "ring.bin").exists()
    open_writer().close()


def test_a_writer_that_stops_at_any_line_leaves_a_sound_ring(folder: Path, open_writer):
    """Hundreds of stops in one process, each at another line, where a kill would seldom hit."""
    chance, texts, stored = random.Random(5), {}, []
    for _ in range(4 * ROUNDS):
        writer, talk = open_writer(pages=PAGES), Conversations(chance)
        before = sys.gettrace()
        try:
            sys.settrace(stop_after(chance.randint(1, 6000)))
            while True:
                prompt, cached = talk.prompt()
                text = prompt + talk.output()
                aux, final = prefix_rows(text[:-1])
                last = len(prompt)
                writer.put_rows("r", cached, aux[cached:last], final[cached:last], prompt)
                writer.put_rows("r", last, aux[last:], final[last:])
                talk.computed(text[:-1])
                texts[writer.counters()["samples"] + 1] = text[:-1]
                sample = writer.finish("r", text, last, draft_version=0, verify_steps=1, accepted_tokens=0)
                stored += [sample] if sample is not None else []
        except Stopped:
            pass
        finally:
            sys.settrace(before)
        os.close(writer._lock)  # as the kernel would; close() of the fixture has nothing left to do then
        writer._lock = None
        writer._ledger.close()

        again = open_writer(pages=PAGES)
        reader = SpoolReader.open(folder)
        infos = reader.samples()
        samples = [reader.read(info) for info in infos]
        assert all(sample is not None and is_of(sample, texts[sample.info.id]) for sample in samples)
        present = {info.id for info in infos}
        kept = [sample for sample in stored if sample in present]
        assert kept == stored[len(stored) - len(kept) :]
        assert len({page for info in infos for page in info.pages}) + again._pages.free == PAGES
        again.erase(lambda *_: False)
        assert leavings(folder) == 0
        texts = {sample: text for sample, text in texts.items() if sample <= reader.totals()["samples"]}
        reader.close()
        again.close()
    assert len(stored) > ROUNDS
