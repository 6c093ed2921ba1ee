"""The folder of published drafts: v0000, v0001, … each complete, checked by hash and never changed again."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tide_cli.drafts.manifest import (
    CONFIG_FILE,
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Manifest,
    damaged,
    parse_version,
    version_name,
    version_of_folder,
)
from tide_cli.errors import TideError

__all__ = ["DraftStore", "Manifest", "parse_version", "version_name"]

_LOCK = ".lock"
_UNFINISHED = ".publishing-"
_CHUNK = 8 * 2**20


class DraftStore:
    """Versions under one root folder. Nothing is made before the first publication."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def versions(self) -> list[int]:
        """Every published version, ascending."""
        try:
            names = [entry.name for entry in os.scandir(self.root) if entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise TideError(
                f"cannot look into {self.root}", why=error.strerror, remedy="mend it, or use another --state-dir"
            ) from None
        return sorted(version for name in names if (version := version_of_folder(name)) is not None)

    def latest(self) -> int | None:
        """The newest version; None when nothing is published."""
        versions = self.versions()
        return versions[-1] if versions else None

    def path(self, version: int) -> Path:
        """The folder of a version, whether it exists or not."""
        return self.root / version_name(version)

    def manifest(self, version: int) -> Manifest:
        """What the version says about itself. TideError when it is not published or its manifest is unreadable."""
        self._require(version)
        return Manifest.read(self.path(version))

    def verify(self, version: int) -> None:
        """Compares every file with its hash. TideError naming the first that is missing, unreadable or different."""
        files = self.manifest(version).files
        for name in (WEIGHTS_FILE, CONFIG_FILE):
            path = self.path(version) / name
            if name not in files:
                raise damaged(path, "the manifest has no hash of it")
            try:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise damaged(path, error.strerror) from None
            if digest != files[name]:
                raise damaged(path, "its sha256 is not the one it was published with")

    def publish(
        self,
        folder: Path,
        *,
        parent: int | None,
        target: str,
        target_revision: str,
        vocab_map_hash: str,
        samples: int,
        tokens: int,
        gate: dict[str, Any] | None,
    ) -> int:
        """Copies a draft's weights and configuration into the store as the next version, and returns its number.

        folder: holds model.safetensors and config.json. A version appears complete or not at all, and survives a
        power cut once this returns; publishers in several processes wait for each other. TideError when a file is
        missing or the store cannot be written.
        """
        for name in (WEIGHTS_FILE, CONFIG_FILE):
            if not (folder / name).is_file():
                raise TideError(f"{folder} is not a draft", why=f"it has no {name}")
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.root))
                try:
                    manifest = Manifest(
                        parent=parent,
                        target=target,
                        target_revision=target_revision,
                        vocab_map_hash=vocab_map_hash,
                        samples=samples,
                        tokens=tokens,
                        gate=gate,
                        created=time.time(),
                        files={name: _copy(folder / name, unfinished / name) for name in (WEIGHTS_FILE, CONFIG_FILE)},
                    )
                    _write(unfinished / MANIFEST_FILE, manifest.to_json().encode())
                    _sync(unfinished)
                    latest = self.latest()
                    version = 0 if latest is None else latest + 1
                    os.rename(unfinished, self.path(version))
                    _sync(self.root)
                    return version
                except BaseException:
                    shutil.rmtree(unfinished, ignore_errors=True)
                    raise
        except OSError as error:
            raise TideError(
                f"cannot publish a draft in {self.root}", why=error.strerror, remedy="free some space there, or mend it"
            ) from None

    def _require(self, version: int) -> None:
        if not self.path(version).is_dir():
            known = ", ".join(version_name(v) for v in self.versions()[-5:]) or "none"
            raise TideError(
                f"there is no draft {version_name(version)} in {self.root}",
                why=f"published: {known}",
                remedy="`tide drafts ls` lists them",
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the store's lock, and removes what a killed publisher left: it can be of nobody alive."""
        lock = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for leftover in self.root.glob(_UNFINISHED + "*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield
        finally:
            os.close(lock)


def _copy(source: Path, destination: Path) -> str:
    """Copies a file, flushed to the disk, mode 0600, and returns the sha256 of what was written."""
    digest = hashlib.sha256()
    with source.open("rb") as reading, open(_new_file(destination), "wb") as writing:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    with open(_new_file(path), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
