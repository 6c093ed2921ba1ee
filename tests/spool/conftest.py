from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spool_traffic import LAYOUT, LONGEST, states, token_ids

from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.writer import SpoolWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spool"


@pytest.fixture
def open_writer(folder: Path) -> Iterator[Callable[..., SpoolWriter]]:
    """Opens writers on `folder`, by default with 12 pages of 4 tokens, and closes them."""
    writers: list[SpoolWriter] = []

    def open_(pages: int = 12, **changes: object) -> SpoolWriter:
        arguments = {"layout": LAYOUT, "size_bytes": LAYOUT.size_for(pages), "run": "run-1"} | {
            "max_sample_tokens": LONGEST,
            "held_out_share": 0.25,
        }
        writers.append(SpoolWriter.open(folder, **(arguments | changes)))
        return writers[-1]

    yield open_
    for writer in writers:
        writer.close()


@pytest.fixture
def open_reader(folder: Path) -> Iterator[Callable[[], SpoolReader]]:
    readers: list[SpoolReader] = []

    def open_() -> SpoolReader:
        readers.append(SpoolReader.open(folder))
        return readers[-1]

    yield open_
    for reader in readers:
        reader.close()


@pytest.fixture
def store() -> Callable[..., int | None]:
    """Writes one whole request and finishes it: rows first … length-1, one token more than rows."""

    def store_(writer: SpoolWriter, seed: int, length: int, first: int = 0, prompt: int = 2) -> int | None:
        aux, final = states(seed, 900)
        writer.put_rows(f"r{seed}", first, aux[first:length], final[first:length])
        return writer.finish(
            f"r{seed}", token_ids(seed, length + 1), prompt, draft_version=3, verify_steps=5, accepted_tokens=7
        )

    return store_
