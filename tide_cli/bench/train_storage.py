"""The same samples as each trainer reads them: rows of TIDE's spool, and the files of SpecForge's offline format.

TIDE writes its rows while it serves. SpecForge's files are written before its training begins; the states in them come
from a run of the target over the texts, which is not part of what is timed here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from tide_cli.bench.train_figures import SPECFORGE, TIDE, Stored
from tide_cli.bench.train_samples import lengths, read
from tide_cli.errors import TideError, reason
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.samples import Sample
from tide_cli.spool.writer import SpoolWriter

_BLOCK = 512  # bytes; what stat counts in, whatever the file system's own are


def store_both(files: Sequence[Path], spool: Path, folder: Path, target: str) -> dict[str, Stored]:
    """`files` as rows of a new spool and as files of a new folder, by contestant.

    target: the name of the model that the states are of. Each sample is written to both in turn; the disk is not
    waited for. Every sample gets pages of its own, though in a spool samples with a common beginning share theirs.
    TideError where there is no room.
    """
    counts = lengths(files)
    layout = RowLayout(hidden_size=read(files[0], 0).final.shape[1], target=target)
    folder.mkdir()
    writer = SpoolWriter.open(
        spool,
        layout,
        layout.size_for(sum(map(layout.pages_for, counts))),
        run="bench",
        max_sample_tokens=max(*counts, layout.page_tokens),
        held_out_share=0.0,
    )
    ours = theirs = 0.0
    with closing(writer):
        for number, file in enumerate(files):
            sample, content = read(file, number), torch.load(file, weights_only=True)
            begun = time.perf_counter()
            _put(writer, sample)
            between = time.perf_counter()
            _save(content, folder / f"{number:06d}.ckpt")
            ours, theirs = ours + between - begun, theirs + time.perf_counter() - between
    tokens = sum(counts)
    return {
        TIDE: Stored(tokens, _on_disk(spool), ours),
        SPECFORGE: Stored(tokens, _on_disk(folder), theirs),
    }


def _put(writer: SpoolWriter, sample: Sample) -> None:
    rid, info = str(sample.info.id), sample.info
    writer.put_rows(rid, 0, sample.aux, sample.final)
    figures = {"draft_version": 0, "verify_steps": 0, "accepted_tokens": 0}
    if writer.finish(rid, sample.tokens.tolist(), info.prompt_tokens, **figures) is None:
        raise TideError(f"sample {rid} was not stored", why=str(writer.counters()))


def _save(content: Mapping[str, Tensor], file: Path) -> None:
    try:
        torch.save(content, file)
    except (OSError, RuntimeError) as error:  # the latter is how torch reports a failed write
        raise TideError(f"cannot write {file}", why=reason(error), remedy="make room on that disk") from None


def _on_disk(folder: Path) -> int:
    """Bytes that the files in a folder take there."""
    return sum(file.stat().st_blocks * _BLOCK for file in folder.iterdir())
