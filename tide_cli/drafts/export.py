"""A version as a folder of its own, that SGLang or another appliance takes as a draft."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tide_cli.drafts.files import copy_file, sync_folder
from tide_cli.drafts.manifest import CONFIG_FILE, MANIFEST_FILE, WEIGHTS_FILE, version_name
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError, UsageError, reason
from tide_cli.folders import taken_back


def export_draft(store: DraftStore, version: int, folder: Path) -> None:
    """Write config.json, model.safetensors and the manifest of a version into a new or empty folder.

    The first two are what `--speculative-draft-model-path` wants; the manifest lets `tide drafts import` check them.
    The folder appears complete or not at all. UsageError where it is not empty, TideError where the version is damaged
    or the folder cannot be written.
    """
    folder = folder.expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder", remedy="name one that does not exist yet")
    store.verify(version)
    try:
        with taken_back(folder):
            _copy(store.path(version), folder)
    except OSError as error:
        what, remedy = f"cannot export {version_name(version)} to {folder}", "name another folder"
        raise TideError(what, why=reason(error), remedy=remedy) from None


def _copy(version: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name in (WEIGHTS_FILE, CONFIG_FILE, MANIFEST_FILE):
            copy_file(version / name, unfinished / name)
        sync_folder(unfinished)
        os.rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
