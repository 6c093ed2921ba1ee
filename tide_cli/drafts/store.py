"""The folder of published drafts: v0000, v0001, … each complete, checked by hash and never changed again.

A version appears and disappears as a whole, by one rename; what a killed process left half done has another name, and
is cleared away by the next one that takes the store's lock.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tide_cli.drafts.files import copy_file, sync_folder, write_file
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
from tide_cli.drafts.marks import Marks, read_marks, write_marks
from tide_cli.errors import TideError, reason
from tide_cli.file_locks import take_lock
from tide_cli.regular_files import check_regular

__all__ = ["DraftStore", "Manifest", "parse_version", "version_name"]

_LOCK = ".lock"
_PATIENCE = 120.0  # seconds for another process to let go of it; copying a large draft takes many
_UNFINISHED = ".publishing-"
_GOING = ".removing-"


class DraftStore:
    """Versions under one root folder. Nothing is made before the first publication."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def versions(self) -> list[int]:
        """Every published version, ascending."""
        try:
            names = [entry.name for entry in os.scandir(self.root) if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise TideError(
                f"cannot look into {self.root}", why=reason(error), remedy="mend it, or use another --state-dir"
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
        check_files(self.path(version), self.manifest(version))

    def size(self, version: int) -> int:
        """Bytes of a version's files on the disk; 0 where there are none."""
        try:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(self.path(version)))
        except FileNotFoundError:
            return 0

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
        with self._writing("publish a draft"):
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
                        files={
                            name: copy_file(folder / name, unfinished / name) for name in (WEIGHTS_FILE, CONFIG_FILE)
                        },
                    )
                    write_file(unfinished / MANIFEST_FILE, manifest.to_json().encode())
                    sync_folder(unfinished)
                    latest = self.latest()
                    version = 0 if latest is None else latest + 1
                    os.rename(unfinished, self.path(version))
                    sync_folder(self.root)
                    return version
                except BaseException:
                    shutil.rmtree(unfinished, ignore_errors=True)
                    raise

    def remove(self, version: int) -> None:
        """Remove a version for good; nothing happens where another process has done it. TideError where it cannot be.

        The caller sees to it that nobody needs it (adaptation.retention).
        """
        with self._writing("remove a draft"), self._locked():
            going = self.root / (_GOING + version_name(version))
            try:
                os.rename(self.path(version), going)
            except FileNotFoundError:
                return
            sync_folder(self.root)
            shutil.rmtree(going)
            marks = self.marks()
            if version in marks.pinned or version in marks.bad:
                bad = {other: reason for other, reason in marks.bad.items() if other != version}
                write_marks(self.root, Marks(marks.pinned - {version}, bad))

    def marks(self) -> Marks:
        """Pinned and bad versions. TideError where they cannot be read."""
        return read_marks(self.root)

    def pin(self, version: int, pinned: bool = True) -> None:
        """Keep a version whatever happens, or no longer. TideError where there is none."""
        self._mark(version, lambda m: replace(m, pinned=m.pinned | {version} if pinned else m.pinned - {version}))

    def mark_bad(self, version: int, reason: str) -> None:
        """Note that a version was taken out of service, and why. TideError where there is none."""
        self._mark(version, lambda marks: replace(marks, bad={**marks.bad, version: reason}))

    def _mark(self, version: int, change: Callable[[Marks], Marks]) -> None:
        with self._writing("mark a draft"):
            self._require(version)
            with self._locked():
                write_marks(self.root, change(self.marks()))

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = f"{Path(error.filename).name}: " if error.filename else ""
            remedy = "free some space there, or mend it"
            raise TideError(f"cannot {what} in {self.root}", why=place + reason(error), remedy=remedy) from None

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
        """Holds the store's lock, and removes what a killed process left half done: it can be of nobody alive.

        TideError where another process does not let go of it: one that is suspended would be waited for for ever.
        """
        lock = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                take_lock(lock, _PATIENCE)
            except BlockingIOError:
                raise TideError(
                    f"the drafts in {self.root} cannot be changed",
                    why=f"another process has held their lock for {_PATIENCE:.0f} s",
                    remedy="try again when it has ended; one that was suspended (Ctrl-Z) must go on or be ended",
                ) from None
            for prefix in (_UNFINISHED, _GOING):
                for leftover in self.root.glob(prefix + "*"):
                    shutil.rmtree(leftover, ignore_errors=True)
            yield
        finally:
            os.close(lock)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compares the files of a version with their hashes. TideError naming the first that is missing or different."""
    for name in (WEIGHTS_FILE, CONFIG_FILE):
        path = folder / name
        if name not in manifest.files:
            raise damaged(path, "the manifest has no hash of it")
        try:
            check_regular(path)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise damaged(path, reason(error)) from None
        if digest != manifest.files[name]:
            raise damaged(path, "its sha256 is not the one it was published with")
