"""Large files of a hub repository into the cache of the hub's own client, each taken up where it was left.

That client (1.33) begins a file anew when a download was killed: half of a checkpoint of 60 GB may be in such files.
Here a part lies beside the place of the finished file, which is compared with the hash that the hub lists.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from tide_cli.errors import TideError

GIB = 2**30
_AT_ONCE = 4  # files: one connection seldom fills the line, and each of them may be left half done
_SAY_EVERY = 5.0  # seconds


@dataclass(frozen=True)
class RemoteFile:
    """A file that the hub stores by its hash. size: bytes; sha256: its name in the cache's folder `blobs`."""

    name: str
    url: str
    size: int
    sha256: str


def missing_bytes(files: Sequence[RemoteFile], blobs: Path) -> int:
    """Bytes of `files` that are not in the cache's folder `blobs` yet, not even in part."""
    return sum(file.size - min(file.size, _present(blobs / file.sha256)) for file in files)


def _present(blob: Path) -> int:
    return next((path.stat().st_size for path in (blob, _partial(blob)) if path.exists()), 0)


def _partial(blob: Path) -> Path:
    return blob.with_name(blob.name + ".incomplete")


class Progress:
    """Says how far each file and all of them are: at the end of each, and every few seconds in between."""

    def __init__(self, total: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._say, self._clock = total, say, clock
        self._have = self._fetched = 0
        self._begun = self._said = clock()
        self._lock = Lock()  # of the threads that fetch

    def had(self, size: int) -> None:
        """Bytes that an earlier start has fetched."""
        self._have += size

    def moved(self, name: str, have: int, size: int, more: int) -> None:
        """`more` bytes of the file `name` have come (fewer than none where the hub began it anew): `have` of `size`."""
        with self._lock:
            self._have += more
            self._fetched += more
            now = self._clock()
            if have >= size or now - self._said >= _SAY_EVERY:
                self._said = now
                rate = max(0.0, self._fetched / (now - self._begun)) if now > self._begun else 0.0
                left = f", {(self._total - self._have) / rate / 60:.0f} min left" if rate else ""
                self._say(
                    f"{name}: {_gib(have)} of {_gib(size)}; together {_gib(self._have)} of {_gib(self._total)}"
                    f" ({rate / 2**20:.0f} MiB/s{left})"
                )


def fetch(files: Sequence[RemoteFile], blobs: Path, headers: dict[str, str], say: Callable[[str], None]) -> None:
    """Fetch what is missing of `files` into `blobs`.

    Raises what the hub's client raises, OSError, and TideError for a file that is not what the hub says: it is removed.
    """
    blobs.mkdir(parents=True, exist_ok=True)
    progress = Progress(sum(file.size for file in files), say)
    progress.had(sum(file.size for file in files) - missing_bytes(files, blobs))
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # after a failure no further file is begun
        list(pool.map(lambda file: _fetch(file, blobs / file.sha256, headers, progress), files))


def _fetch(file: RemoteFile, blob: Path, headers: dict[str, str], progress: Progress) -> None:
    from huggingface_hub.file_download import http_get

    partial = _partial(blob)
    if blob.exists():
        return
    with partial.open("ab") as out:
        fcntl.flock(out, fcntl.LOCK_EX)  # another appliance may be fetching the same target
        if blob.exists():
            return
        if (have := partial.stat().st_size) > file.size:
            out.truncate(have := 0)
        if have < file.size:
            bar = _bar(file, have, progress)
            # goes on after a broken connection by itself, five times
            http_get(file.url, out, resume_size=have, headers=headers, expected_size=file.size, tqdm_class=bar)
        out.flush()
        os.fsync(out.fileno())
        if _sha256(partial) != file.sha256:
            partial.unlink()
            raise TideError(f"{file.name} came damaged", why="its SHA-256 is not the hub's", remedy="try again")
        os.rename(partial, blob)


def _bar(file: RemoteFile, have: int, progress: Progress) -> Any:
    """What the hub's client takes for a progress bar of tqdm's."""

    class Bar:
        def __init__(self, *_: object, **__: object) -> None:
            self._have = have

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, more: int) -> None:
            self._have += more
            progress.moved(file.name, self._have, file.size, more)

    return Bar


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
