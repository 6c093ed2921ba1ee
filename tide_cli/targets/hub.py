"""Checkpoints from the Hugging Face hub, in the cache of its own client.

What is complete there is used without asking the hub. Else the files are listed, the disk is looked at, and what is
missing is fetched (targets/fetch.py). Only files at the top of a repository count: gpt-oss keeps its weights once more
below `original/`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object
from tide_cli.printable import many
from tide_cli.targets.fetch import GIB, RemoteFile, fetch, missing_bytes

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

_WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.tiktoken")
_PICKLED = ("*.bin",)  # where a repository has no safetensors
_BELOW = ("*/*",)
_SPARE = GIB  # of the disk, for everything else


def download(hub_id: str, revision: str | None, say: Callable[[str], None] = print) -> Path:
    """The local folder of a hub checkpoint at a commit, tag or branch (None: its newest); fetched where it is not here.

    Raises TideError when the hub can't be reached, refuses, or does not know the id, and when the disk is too small.
    """
    if (folder := complete(hub_id, revision)) is not None:
        return folder
    with _explained(hub_id, revision):
        return _fetched(hub_id, revision, say)


def read_config(hub_id: str, revision: str | None) -> dict[str, Any]:
    """config.json of a hub checkpoint, which is fetched alone where it is not here. Raises TideError as `download`."""
    from huggingface_hub import hf_hub_download

    with _explained(hub_id, revision):
        path = hf_hub_download(hub_id, "config.json", revision=revision)
    try:
        return read_object(Path(path))
    except ValueError:
        raise TideError(f"config.json of {hub_id} is no JSON object", remedy="choose another") from None


def complete(hub_id: str, revision: str | None) -> Path | None:
    """The local folder of a hub checkpoint where all of it is here; the hub is not asked."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    patterns = {"allow_patterns": [*_WANTED], "ignore_patterns": [*_BELOW]}
    try:
        folder = Path(snapshot_download(hub_id, revision=revision, local_files_only=True, **patterns))
    except LocalEntryNotFoundError:
        return None
    return folder if _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    """Whether a model's files are all there, as far as the files themselves tell."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(next(folder.glob(pattern), None) for pattern in ("*.safetensors", *_PICKLED))
    try:
        names = set(read_object(index)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return all((folder / name).is_file() for name in names)


def _fetched(hub_id: str, revision: str | None, say: Callable[[str], None]) -> Path:
    from huggingface_hub import HfApi, constants, hf_hub_url, snapshot_download
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils import build_hf_headers, disable_progress_bars

    disable_progress_bars()  # they would fill the log
    api = HfApi()
    commit = api.model_info(hub_id, revision=revision).sha
    listed = [file for file in api.list_repo_tree(hub_id, revision=commit) if hasattr(file, "size")]
    wanted = _wanted(listed)
    large = [
        RemoteFile(file.path, hf_hub_url(hub_id, file.path, revision=commit), file.lfs.size, file.lfs.sha256)
        for file in wanted
        if file.lfs is not None
    ]
    cache = Path(constants.HF_HUB_CACHE)
    blobs = cache / repo_folder_name(repo_id=hub_id, repo_type="model") / "blobs"
    missing = missing_bytes(large, blobs)
    _check_disk(hub_id, missing, cache)
    say(f"fetching {hub_id} at {commit}: {many(len(wanted), 'file')}, {missing / GIB:.2f} GiB are missing")
    fetch(large, blobs, build_hf_headers(), say)
    names = [file.path for file in wanted]
    # by its own name, so that the client notes which commit that was
    return Path(snapshot_download(hub_id, revision=revision, allow_patterns=names))


def _wanted(listed: list[RepoFile]) -> list[RepoFile]:
    own = [file for file in listed if "/" not in file.path]
    patterns = _WANTED if any(file.path.endswith(".safetensors") for file in own) else (*_WANTED, *_PICKLED)
    return [file for file in own if any(fnmatch(file.path, pattern) for pattern in patterns)]


def _check_disk(hub_id: str, missing: int, cache: Path) -> None:
    folder = cache
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if missing + _SPARE > free:
        raise TideError(
            f"{hub_id} does not fit on the disk",
            why=f"{missing / GIB:.1f} GiB are missing of it, {free / GIB:.1f} GiB are free under {folder}",
            remedy="free some space there, or set HF_HOME to a folder on a larger disk",
        )


@contextmanager
def _explained(hub_id: str, revision: str | None) -> Iterator[None]:
    """Turns what the hub's client raises into words."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    page = f"{constants.ENDPOINT}/{hub_id}"
    try:
        yield
    except GatedRepoError:
        known = get_token() is not None
        raise TideError(
            f"{hub_id} is gated",
            why="the account of your token has no access to it" if known else "its owner wants its licence accepted",
            remedy=f"accept it at {page}"
            + (" with that account, then try again" if known else ", then set HF_TOKEN or `hf auth login`"),
        ) from None
    except RepositoryNotFoundError:
        raise TideError(
            f"the hub has no {hub_id}, or it is private",
            remedy="check the name; for a private one set HF_TOKEN or `hf auth login`; or pass a checkpoint folder",
        ) from None
    except RevisionNotFoundError:
        raise TideError(
            f"{hub_id} has no revision {revision}",
            why="its owner may have rewritten the repository",
            remedy=f"fetch the present one with `hf download {hub_id} --local-dir DIR`, and pass that folder",
        ) from None
    except HfHubHTTPError as error:
        if error.response.status_code == 401:
            why, remedy = "the hub does not accept your token", "set HF_TOKEN anew, or `hf auth login`"
        else:
            why, remedy = reason(error), "try again; what has come stays"
        raise TideError(f"{hub_id} cannot be fetched from {constants.ENDPOINT}", why=why, remedy=remedy) from None
    except Exception as error:  # of the client's HTTP library, which differs from one of its versions to the next
        if isinstance(error, TideError):
            raise
        if constants.HF_HUB_OFFLINE:
            raise TideError(
                f"{hub_id} is not complete in the local cache",
                why="HF_HUB_OFFLINE forbids to fetch it",
                remedy=f"unset HF_HUB_OFFLINE, or fetch it elsewhere and pass the folder: `hf download {hub_id}`",
            ) from None
        raise TideError(
            f"{hub_id} cannot be fetched from {constants.ENDPOINT}",
            why=reason(error),
            remedy="connect and try again, what has come stays; or pass a checkpoint folder with --target FOLDER",
        ) from None
