"""Taking an export (see export.py) up into a spool: everything is checked before the first sample is written."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object
from tide_cli.printable import size_words
from tide_cli.setting_values import shown
from tide_cli.spool.export import FORMAT, FORMAT_VERSION, IN_RING_ONLY, MANIFEST_FILE
from tide_cli.spool.figures import read_ring
from tide_cli.spool.index import LATEST, SpoolIndex
from tide_cli.spool.layout import PAGE_ENTRY, RowLayout
from tide_cli.spool.ring import RING_FILE
from tide_cli.spool.samples import SampleInfo, is_finite
from tide_cli.spool.upkeep import Tick
from tide_cli.spool.writer import SpoolWriter

_LONGEST = 2**24  # positions of a sequence; no model's context is that long


@dataclass(frozen=True)
class ExportedSample:
    """A file of an export; info: its figures, without those of IN_RING_ONLY."""

    path: Path
    sha256: str
    info: SampleInfo


@dataclass(frozen=True)
class Export:
    """A whole export; its samples oldest first."""

    folder: Path
    target: str
    hidden_size: int
    samples: tuple[ExportedSample, ...]


@dataclass(frozen=True)
class Imported:
    """samples, tokens: taken up now. known: samples that the spool had already. dropped: could not be stored."""

    samples: int
    tokens: int
    known: int
    dropped: int


def read_export(folder: Path) -> Export:
    """What the manifest in `folder` says. TideError where it is no export, or one of another kind."""
    path = folder / MANIFEST_FILE
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ValueError(f"{MANIFEST_FILE} is no file")
        manifest = read_object(path)
    except (OSError, ValueError) as error:
        raise _no_export(folder, reason(error)) from None
    if manifest.get("format") != FORMAT:
        raise _no_export(folder, f"{path} is not the manifest of one")
    if manifest.get("version") != FORMAT_VERSION:
        raise _no_export(folder, f"its format is {manifest.get('version')}, this TIDE reads {FORMAT_VERSION}")
    try:
        samples = [_sample(folder, entry) for entry in manifest["samples"]]
        samples.sort(key=lambda sample: (sample.info.created, sample.info.id))
        export = Export(folder, manifest["target"], manifest["hidden_size"], tuple(samples))
        if type(export.target) is not str or type(export.hidden_size) is not int:
            raise ValueError("target or hidden_size is not what it should be")
        RowLayout(hidden_size=export.hidden_size, target=export.target)  # says what is wrong with them
        return export
    except (KeyError, TypeError, ValueError) as error:
        raise _no_export(folder, f"{path}: {reason(error)}") from None


def check_export(export: Export, tick: Tick) -> None:
    """Reads every file. TideError naming the first one that is missing, damaged, or holds a wrong tensor."""
    for done, sample in enumerate(export.samples, start=1):
        _read(sample, export.hidden_size)
        tick(done, len(export.samples))


def open_spool(
    export: Export, spool: Path, size_bytes: int, *, overwrite: bool
) -> tuple[SpoolWriter, list[ExportedSample]]:
    """A writer on `spool`, made with `size_bytes` where there is none, and the samples that it does not have yet.

    A sample is known by its engine run and its time. TideError, with nothing changed: another target or hidden size,
    too little room, samples that would be overwritten unless `overwrite` says so, another writer.
    """
    layout = RowLayout(hidden_size=export.hidden_size, target=export.target)
    pages, present = layout.pages_in(size_bytes), []
    if (spool / RING_FILE).exists():
        layout, pages, _ = read_ring(spool)
        _check_kind(export, spool, layout)
        with closing(SpoolIndex.open(spool)) as index:
            present = index.samples()
    known = {(info.run, info.created) for info in present}
    samples = []
    for sample in export.samples:
        if (name := (sample.info.run, sample.info.created)) not in known:
            known.add(name)
            samples.append(sample)
    infos = [sample.info for sample in samples]
    needed = sum(layout.pages_for(info.prefix_missing % layout.page_tokens + info.tokens) for info in infos)
    free = pages - len({page for info in present for page in info.pages})
    if needed > pages:
        raise TideError(
            f"the export does not fit into {spool}",
            why=f"it takes {size_words(layout.size_for(needed))}, the spool has {size_words(layout.size_for(pages))}",
            remedy="export less, with --newest, or import into another --state-dir with a larger --spool-size",
        )
    if needed > free and not overwrite:
        raise TideError(
            f"there is too little room in {spool}",
            why=f"{needed} pages are needed, {free} are free",
            remedy="with --overwrite the oldest samples there make room",
        )
    longest = max((info.tokens for info in infos), default=0)
    writer = SpoolWriter.open(
        spool,
        layout,
        size_bytes,
        run="import",
        max_sample_tokens=max(longest, layout.page_tokens),
        held_out_share=0.0,  # each sample brings its split
    )
    return writer, samples


def _check_kind(export: Export, spool: Path, layout: RowLayout) -> None:
    if (layout.target, layout.hidden_size) != (export.target, export.hidden_size):
        raise TideError(
            f"the export in {export.folder} is of another kind than the spool in {spool}",
            why=f"it holds states of {export.target} (hidden size {export.hidden_size}), the spool those of "
            f"{layout.target} (hidden size {layout.hidden_size})",
            remedy="states of one model are of no use to another: import into another --state-dir",
        )


def take_up(writer: SpoolWriter, export: Export, samples: Sequence[ExportedSample], tick: Tick) -> Imported:
    """Writes `samples` one after the other; each becomes visible whole, with a new id and its old run, time and split.

    An interruption leaves those that were finished, and the same import goes on from there. Pages that samples shared
    in the exported spool are stored for each of them.
    """
    stored = tokens = 0
    for done, sample in enumerate(samples, start=1):
        info, rid = sample.info, f"import-{done}"
        ids, aux, final = _read(sample, export.hidden_size)
        writer.put_rows(rid, info.prefix_missing, aux, final)
        # tokens before the first row are not part of an export, and of no sample either
        sequence = [0] * info.prefix_missing + ids.tolist()
        new = writer.finish(
            rid,
            sequence,
            info.prompt_tokens,
            draft_version=info.draft_version,
            verify_steps=info.verify_steps,
            accepted_tokens=info.accepted,
            origin=info,
        )
        stored, tokens = stored + (new is not None), tokens + (info.tokens if new is not None else 0)
        tick(done, len(samples))
    return Imported(stored, tokens, len(export.samples) - len(samples), len(samples) - stored)


def _sample(folder: Path, entry: dict[str, Any]) -> ExportedSample:
    """An entry of the manifest. KeyError, TypeError or ValueError where something is missing or wrong."""
    path = Path(os.path.realpath(folder / entry["file"]))  # resolve() raises an error of its own for a loop of links
    if not path.is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{entry['file']} is outside the folder")
    values: dict[str, Any] = dict(IN_RING_ONLY)
    for field in fields(SampleInfo):
        if field.name in values:
            continue
        value = entry.get("domain", "") if field.name == "domain" else entry[field.name]  # older exports have none
        kind: Any = {"run": str, "split": str, "domain": str, "created": float}.get(field.name, int)
        if type(value) is not kind or not _possible(field.name, value):
            raise ValueError(f"{entry['file']}: {field.name} is {shown(value)}")
        values[field.name] = value
    info = SampleInfo(**values)
    if info.split not in ("train", "held_out") or info.tokens < 1 or info.generated < 1:
        raise ValueError(f"{entry['file']}: its figures contradict each other")
    if info.prefix_missing + info.tokens > _LONGEST:
        raise ValueError(f"{entry['file']}: it ends at position {info.prefix_missing + info.tokens}")
    return ExportedSample(path, str(entry["sha256"]), info)


def _possible(name: str, value: float | str) -> bool:
    """Whether the ring can hold a figure, and the index a time, like this one."""
    if isinstance(value, str):
        room = PAGE_ENTRY["domain" if name == "domain" else "run"].itemsize
        return len(value.encode()) <= room and "\0" not in value
    return 0 <= value < (2**31 if isinstance(value, int) else LATEST)  # NaN is in no range


def _read(sample: ExportedSample, hidden: int) -> tuple[Tensor, Tensor, Tensor]:
    """(ids [T] int64, aux [T, 3H], final [T, H] bfloat16) of a file. TideError where they are not what they should."""
    info, path = sample.info, sample.path
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ValueError("it is no file" if path.exists() else "it does not exist")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != sample.sha256:
            raise ValueError("its SHA-256 is not that of the manifest")
        tensors = torch.load(io.BytesIO(content), weights_only=True)
        expected = {
            "input_ids": ((info.tokens,), torch.int64),
            "loss_mask": ((info.tokens,), torch.int64),
            "aux_hidden_state": ((1, info.tokens, 3 * hidden), torch.bfloat16),
            "hidden_state": ((1, info.tokens, hidden), torch.bfloat16),
        }
        for name, (shape, dtype) in expected.items():
            found = tensors[name]
            if tuple(found.shape) != shape or found.dtype != dtype:
                raise ValueError(f"{name} is {tuple(found.shape)} {found.dtype}, not {shape} {dtype}")
            if found.layout is not torch.strided or found.device.type != "cpu":
                raise ValueError(f"{name} is not stored value by value")
            if dtype.is_floating_point and not is_finite(found):
                raise ValueError(f"{name} has values that are not finite")
        ids = tensors["input_ids"]
        generated = torch.arange(info.tokens) + info.prefix_missing >= info.prompt_tokens
        if ids.min() < 0 or ids.max() >= 2**31 or not torch.equal(tensors["loss_mask"].bool(), generated):
            raise ValueError("input_ids or loss_mask cannot be right")
    except OSError as error:
        raise _wrong(path, reason(error)) from None
    except KeyError as error:
        raise _wrong(path, f"it has no {error.args[0]}") from None
    except pickle.UnpicklingError:
        raise _wrong(path, "it holds other things than tensors") from None
    except (ValueError, TypeError, AttributeError, RuntimeError, EOFError) as error:
        raise _wrong(path, reason(error)) from None
    return ids, tensors["aux_hidden_state"][0], tensors["hidden_state"][0]


def _wrong(path: Path, why: str) -> TideError:
    return TideError(
        f"{path} cannot be imported", why=why, remedy="nothing was imported: copy the export again, or make it anew"
    )


def _no_export(folder: Path, why: str) -> TideError:
    return TideError(f"{folder} is no export", why=why, remedy="`tide spool export DIR` makes one")
