"""Samples as files of SpecForge's offline format, and a manifest from which another spool can take them up again.

    DIR/train/00000/000000000001.ckpt      one sample a file, named by its id, 1000 in a folder
    DIR/held_out/00000/000000000007.ckpt
    DIR/manifest.json                      written last: a folder without it is no export

A file is what SpecForge 0.2.0's offline reader takes (`hidden_states_path: DIR/train`), a torch file with

    input_ids         [T] int64
    loss_mask         [T] int64         1 on tokens that the target generated
    aux_hidden_state  [1, T, 3H] bfloat16
    hidden_state      [1, T, H] bfloat16, the final states

The manifest names target and hidden size, and has for each file its SHA-256 and the sample's figures.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tide_cli.errors import TideError, reason
from tide_cli.folders import taken_back
from tide_cli.printable import size_words
from tide_cli.spool.folder import is_full, is_written, unusable
from tide_cli.spool.layout import row_bytes
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import Sample, SampleInfo, is_finite
from tide_cli.spool.upkeep import Tick

MANIFEST_FILE = "manifest.json"
FORMAT = "tide-spool-export"
FORMAT_VERSION = 1
# figures that belong to the pages of one ring
IN_RING_ONLY = {"checksum": 0, "pages": (), "generations": (), "reused": 0, "times_trained": 0}
_FILES_IN_A_SHARD = 1000
_SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class Exported:
    """samples, tokens: written; size_bytes: of their files. overwritten, damaged: samples that could not be read.
    not_finite: samples with values that no draft can be trained on, which an import would refuse.

    index_only: samples that the index still names and the ring has given up, though nobody writes.
    """

    folder: str
    samples: int
    tokens: int
    size_bytes: int
    overwritten: int
    damaged: int
    not_finite: int
    index_only: int


def export(reader: SpoolReader, samples: Sequence[SampleInfo], folder: Path, tick: Tick) -> Exported:
    """Writes `samples` into `folder`, which must be empty or not exist; files 0600 in 0700 folders.

    Whatever goes wrong, an interruption too, nothing of it stays. TideError: no sample, folder not empty, no room.
    """
    if not samples:
        raise TideError("there is no such sample to export", remedy="`tide spool ls` lists what there is")
    held = reader.held(samples)
    index_only = 0 if is_written(reader.folder) else len(samples) - len(held)
    with taken_back(folder):
        return _export(reader, held if index_only else samples, folder, tick, index_only)


def _export(reader: SpoolReader, samples: Sequence[SampleInfo], folder: Path, tick: Tick, index_only: int) -> Exported:
    _take_folder(folder, sum(info.tokens for info in samples) * row_bytes(reader.layout.hidden_size))
    overwritten, damaged = reader.overwritten, reader.damaged
    try:
        entries: list[dict[str, Any]] = []
        written = not_finite = 0
        for done, info in enumerate(sorted(samples, key=lambda info: info.id), start=1):
            try:
                sample = reader.read(info)
            except OSError as error:  # the ring was cut short or deleted meanwhile
                raise unusable(reader.folder, error) from None
            if sample is not None and not (is_finite(sample.aux) and is_finite(sample.final)):
                not_finite += 1
            elif sample is not None:
                name = f"{info.split}/{len(entries) // _FILES_IN_A_SHARD:05d}/{info.id:012d}.ckpt"
                content = _content(sample)
                _write(folder / name, content)
                written += len(content)
                entries.append({"file": name, "sha256": hashlib.sha256(content).hexdigest(), **_figures(info)})
            tick(done, len(samples))
        if not entries:
            why = "their values are not finite: the target overflowed" if not_finite else None
            raise TideError("not one of the samples can be used", why=why, remedy="`tide spool verify` says more")
        manifest = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "created": time.time(),
            "target": reader.layout.target,
            "hidden_size": reader.layout.hidden_size,
            "tokens": sum(entry["tokens"] for entry in entries),
            "samples": entries,
        }
        _write(folder / MANIFEST_FILE, json.dumps(manifest, indent=1).encode())
    except BaseException as error:
        for name in _SPLITS:
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / f"{MANIFEST_FILE}.new").unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from None
        raise
    return Exported(
        folder=str(folder),
        samples=len(entries),
        tokens=manifest["tokens"],
        size_bytes=written,
        overwritten=reader.overwritten - overwritten,
        damaged=reader.damaged - damaged,
        not_finite=not_finite,
        index_only=index_only,
    )


def _take_folder(folder: Path, size: int) -> None:
    """Make it where it is missing. TideError where it cannot be used."""
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        if names:
            unfinished = names <= {*_SPLITS, f"{MANIFEST_FILE}.new"}
            raise TideError(
                f"{folder} is not empty",
                why="it holds an unfinished export, whose command was killed or still runs" if unfinished else None,
                remedy="name a folder that is empty or does not exist yet" + ", or delete this one" * unfinished,
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise _unwritable(folder, error) from None
    if size > free:
        words = f"about {size_words(size)} are needed, {size_words(free)} are free"
        raise _unwritable(folder, OSError(errno.ENOSPC, words))


def _content(sample: Sample) -> memoryview:
    buffer = io.BytesIO()
    tensors = {
        "input_ids": sample.tokens,
        "loss_mask": sample.loss_mask.long(),
        "aux_hidden_state": sample.aux[None],
        "hidden_state": sample.final[None],
    }
    torch.save(tensors, buffer)
    return buffer.getbuffer()


def _write(path: Path, content: bytes | memoryview) -> None:
    """The whole file or nothing under that name."""
    for parent in (path.parent.parent, path.parent):
        parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    os.replace(unfinished, path)


def _figures(info: SampleInfo) -> dict[str, Any]:
    return {name: value for name, value in asdict(info).items() if name not in IN_RING_ONLY}


def _unwritable(folder: Path, error: OSError) -> TideError:
    remedy = "free some space, or name another folder" if is_full(error) else "name a folder that you can write to"
    return TideError(f"cannot export to {folder}", why=reason(error), remedy=remedy)
