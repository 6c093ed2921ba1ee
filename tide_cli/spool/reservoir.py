"""A bounded set of old samples, each kept with the same chance however old it is.

Replay must still have samples of a domain that left the ring long ago. Every sample has a rank, drawn from a hash of
the seed and the sample: the reservoir keeps those with the lowest ranks that fit into its bytes. That is a uniform
draw over everything ever offered (bottom-k sampling), needs no state besides the files, and gives the same set in
whatever order and however often samples of one size are offered. With different sizes the last places go to small ones
a little more often.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open

from tide_cli.errors import TideError, reason
from tide_cli.json_files import json_object
from tide_cli.spool.index import HIGHEST_ID, LATEST
from tide_cli.spool.ring import checksum, row_sums
from tide_cli.spool.samples import Sample, SampleInfo

if TYPE_CHECKING:
    from torch import Tensor

RESERVOIR_FOLDER = "reservoir"  # in the spool's folder
_SUFFIX = ".safetensors"
_NEW = ".new"
_ERASED = ".erased"


@dataclass(frozen=True, order=True)
class StoredSample:
    """A kept sample; its rows stay on the disk until `read`."""

    rank: str
    path: Path = field(compare=False)
    size_bytes: int = field(compare=False)
    info: SampleInfo = field(compare=False)  # of the sample as offered; it has no pages any more

    def read(self) -> Sample | None:
        """The sample; None when it made room for another one meanwhile, cannot be read or is damaged."""
        try:
            with safe_open(self.path, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in ("tokens", "loss_mask", "aux", "final")}
        except (OSError, SafetensorError):
            return None
        # after the copy: a file that is erased loses its name before its bytes are overwritten
        if not self.path.exists() or not _is_sound(self.info, **tensors):
            return None
        return Sample(info=self.info, **tensors)

    def generated_tokens(self) -> np.ndarray | None:
        """Ids [generated] int64 of what the target said, without reading its states; None as for `read`."""
        try:
            with safe_open(self.path, "np") as file:
                tokens, generated = file.get_tensor("tokens"), file.get_tensor("loss_mask")
        except (OSError, SafetensorError, TypeError, AttributeError):  # the latter: a type that numpy has not
            return None
        if (tokens.dtype, generated.dtype) != (np.int64, np.bool_) or not tokens.shape == generated.shape == (
            self.info.tokens,
        ):
            return None
        return tokens[generated] if self.path.exists() else None


class Reservoir:
    """Old samples as safetensors files of one folder, of at most `max_bytes` bytes together. One process writes."""

    def __init__(self, folder: Path, max_bytes: int, seed: int) -> None:
        """Takes up what the folder holds; makes it where it is missing. TideError when it cannot be used."""
        self._folder, self._max_bytes, self._seed = folder, max_bytes, seed
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in folder.glob("*" + _NEW):
                leftover.unlink()
            found = [_stored(path) for path in _files(folder, _SUFFIX)]
        except OSError as error:
            raise TideError(f"the reservoir in {folder} cannot be used", why=reason(error)) from None
        self._kept = sorted(entry for entry in found if entry is not None)
        self.size_bytes = sum(entry.size_bytes for entry in self._kept)
        self._shrink()

    def offer(self, sample: Sample) -> bool:
        """Keeps the sample if its rank is among the lowest. Returns whether it is in the reservoir now.

        A full disk is no error: the sample is not kept.
        """
        rank = self._rank(sample.info)
        if any(entry.rank == rank for entry in self._kept):
            return True
        size = sum(tensor.nbytes for tensor in (sample.tokens, sample.loss_mask, sample.aux, sample.final))
        lower = sum(entry.size_bytes for entry in self._kept if entry.rank < rank)
        if lower + size > self._max_bytes:
            return False
        try:
            entry = self._write(rank, sample)
        except OSError:
            return False
        insort(self._kept, entry)
        self.size_bytes += entry.size_bytes
        self._shrink()
        return entry in self._kept

    def samples(self) -> list[StoredSample]:
        """What is kept, in the order of the ranks, which is random."""
        self._kept = [entry for entry in self._kept if entry.path.exists()]  # others may have been erased meanwhile
        self.size_bytes = sum(entry.size_bytes for entry in self._kept)
        return list(self._kept)

    def _rank(self, info: SampleInfo) -> str:
        text = f"{self._seed}:{info.run}:{info.id}:{info.created!r}:{info.checksum}"
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def _write(self, rank: str, sample: Sample) -> StoredSample:
        from safetensors.torch import save_file  # erasing needs no torch

        path = self._folder / (rank + _SUFFIX)
        unfinished = path.with_suffix(_NEW)
        info = replace(sample.info, pages=(), generations=())
        tensors = {name: getattr(sample, name).contiguous() for name in ("tokens", "loss_mask", "aux", "final")}
        try:
            with _alone(self._folder):
                os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
                save_file(tensors, unfinished, metadata={"info": json.dumps(asdict(info))})
                unfinished.chmod(0o600)
                size = unfinished.stat().st_size
                os.replace(unfinished, path)
        except SafetensorError as error:  # how the library reports a failed write
            unfinished.unlink(missing_ok=True)
            raise OSError(str(error)) from None
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        return StoredSample(rank, path, size, info)

    def _shrink(self) -> None:
        while self.size_bytes > self._max_bytes:
            last = self._kept.pop()
            last.path.unlink(missing_ok=True)
            self.size_bytes -= last.size_bytes


def kept_samples(folder: Path) -> list[StoredSample]:
    """What the reservoir in `folder` holds, for whoever is not its writer; what cannot be read is passed over.

    OSError where the folder cannot be read.
    """
    found = [(path, _info(path)) for path in _files(folder, _SUFFIX)]
    # a size that nobody needs is not asked for: the trainer may remove a file at any moment
    return [StoredSample(path.stem, path, 0, info) for path, info in found if info is not None]


def damaged_files(folder: Path, tick: Callable[[], None]) -> tuple[int, list[Path]]:
    """How many kept samples are sound, and the files of the others, by name; tick: called after each file. OSError."""
    good, damaged = 0, []
    for path in _files(folder, _SUFFIX):
        info = _info(path)
        if info is not None and StoredSample(path.stem, path, 0, info).read() is not None:
            good += 1
        elif path.exists():
            damaged.append(path)
        tick()
    return good, damaged


def erase_kept(folder: Path, chosen: Callable[[int, float], bool]) -> int:
    """Overwrites with zeros and removes the files of which `chosen` (id, created in unix seconds) is true, and files
    that cannot be read, half written ones among them. Returns how many. May be called while the trainer has the
    reservoir open: a sample that it just writes is waited for. OSError. No torch.
    """
    if not folder.is_dir():
        return 0
    erased = 0
    with _alone(folder):
        for path in (path for suffix in (_NEW, _SUFFIX, _ERASED) for path in _files(folder, suffix)):
            info = _info(path)
            if info is not None and path.suffix != _ERASED and not chosen(info.id, info.created):
                continue
            nameless = path.with_suffix(_ERASED)
            try:
                os.replace(path, nameless)
            except FileNotFoundError:  # it made room for another one
                continue
            with nameless.open("r+b") as file:
                left = nameless.stat().st_size
                while left:
                    left -= file.write(bytes(min(left, 2**20)))
                file.flush()
                os.fsync(file.fileno())
            nameless.unlink()
            erased += 1
    return erased


def erase_expired(folder: Path, seconds: float) -> None:
    """Erases what was created longer ago than this; what cannot be erased now is left to the next call. No torch."""
    limit = time.time() - seconds
    with suppress(OSError):
        erase_kept(folder, lambda _, created: created < limit)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps whoever writes a file and whoever erases some apart: bytes written after the zeros would stay. OSError."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_sound(info: SampleInfo, tokens: Tensor, loss_mask: Tensor, aux: Tensor, final: Tensor) -> bool:
    """Whether these are the bytes that the writer stored, by the sample's checksum."""
    import torch

    try:
        ids, position = tokens.numpy(), torch.arange(info.prefix_missing, info.prefix_missing + len(tokens))
        if not np.array_equal(ids, ids.astype("<i4")) or not torch.equal(loss_mask, position >= info.prompt_tokens):
            return False
        rows = (states.contiguous().view(torch.int16).numpy().view("<u2") for states in (aux, final))
        return checksum(info, ids, row_sums(*rows)) == info.checksum
    except (TypeError, ValueError, RuntimeError):  # other shapes or types than were written
        return False


def _files(folder: Path, suffix: str) -> list[Path]:
    """By name; what else stands there is not the reservoir's: a pipe would be waited for, a link leads elsewhere.

    OSError where the folder cannot be read.
    """
    try:
        names = os.listdir(folder)  # glob() passes over what it may not read
    except (FileNotFoundError, NotADirectoryError):
        return []
    paths = sorted(folder / name for name in names if name.endswith(suffix))
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _stored(path: Path) -> StoredSample | None:
    """A file of the folder as an entry; a file that cannot be read is removed."""
    info = _info(path)
    if info is None:
        path.unlink(missing_ok=True)
        return None
    return StoredSample(path.stem, path, path.stat().st_size, info)


def _info(path: Path) -> SampleInfo | None:
    """What a file says of its sample; None where it cannot be read."""
    try:
        with safe_open(path, "np") as file:
            read = json_object(file.metadata()["info"])
        info = SampleInfo(**{**read, "pages": (), "generations": ()})
        return info if _is_possible(info) else None
    except (SafetensorError, FileNotFoundError, KeyError, TypeError, ValueError):
        return None


def _is_possible(info: SampleInfo) -> bool:
    """Whether each figure is one that a ring can hold."""
    counts = (info.tokens, info.prompt_tokens, info.prefix_missing, info.verify_steps, info.accepted)
    return (
        all(type(count) is int and 0 <= count < 2**32 for count in (*counts, info.checksum, info.cut, info.reused))
        and type(info.id) is int
        and 0 < info.id <= HIGHEST_ID
        and type(info.created) is float
        and 0 <= info.created < LATEST
        and type(info.draft_version) is int
        and -(2**31) <= info.draft_version < 2**31
        and type(info.run) is type(info.domain) is str
        and info.split in ("train", "held_out")
        and type(info.times_trained) is int
    )
