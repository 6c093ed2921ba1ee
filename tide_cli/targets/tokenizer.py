"""The tokenizer of a target whose files are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tide_cli.errors import TideError, reason
from tide_cli.paths import Paths
from tide_cli.targets.known import pinned_revision
from tide_cli.targets.locate import Target, resolve_target

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FILE = "tokenizer.json"


def load_tokenizer(wanted: str, paths: Paths) -> Tokenizer:
    """`wanted`: a target as `tide up --target` takes it, or the name the spool has for it.

    TideError when its tokenizer is not on this machine; nothing is fetched.
    """
    from tokenizers import Tokenizer

    folder = Path(wanted).expanduser()
    try:
        # a folder needs no weights for this; a hub id's slash is written -- in the spool
        file = (
            folder / _FILE
            if folder.is_dir()
            else _file(resolve_target(wanted if "/" in wanted else wanted.replace("--", "/"), paths))
        )
    except TideError:  # the name of a folder somewhere
        file = None
    if file is None or not file.is_file():
        raise TideError(
            f"the tokenizer of {wanted} is not here",
            why=None if file is None else f"{file} does not exist",
            remedy="name the target's checkpoint folder with --target",
        )
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise TideError(f"{file} cannot be read", why=reason(error)) from None


def _file(target: Target) -> Path | None:
    if target.folder is not None:
        return target.folder / _FILE
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(str(target.hub_id), _FILE, revision=pinned_revision(str(target.hub_id)))
    return Path(found) if isinstance(found, str) else None
