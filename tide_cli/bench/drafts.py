"""Which drafts a measurement compares: those of an appliance's state folder, or folders and hub ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tide_cli.drafts.manifest import WEIGHTS_FILE
from tide_cli.drafts.store import DraftStore, parse_version, version_name
from tide_cli.errors import UsageError
from tide_cli.paths import Paths
from tide_cli.supervisor.journal import read_served


def choose_drafts(paths: Paths, static: str | None, adapted: str | None) -> dict[str, dict[str, Any]]:
    """{mode: {draft, sha256}} of static, and of adapted and policy where there is an adapted draft.

    static, adapted: a version such as v0003 of the state folder, a folder or a hub id; None: the one that all others
    there come from, and the one that is or was served there, else the newest. draft is None where the target's own, or
    a fresh one, is meant. static is left out where the others' origin was removed: the oldest of them is adapted, too.
    Raises UsageError or TideError for a version that is not there.
    """
    for flag, wanted in (("--static", static), ("--adapted", adapted)):
        if wanted is not None and not wanted.strip():
            raise UsageError(f"{flag} {wanted!r} is not a draft", remedy="name a version, a folder or a hub id")
    store = DraftStore(paths.drafts)
    versions = store.versions()
    served = read_served(paths.database)
    origin: int | None = None
    if versions and None in (static, adapted):
        origin = versions[0] if store.manifest(versions[0]).parent is None else None
        newest = served if served in versions else versions[-1]
        if adapted is None and newest != origin:
            adapted = version_name(newest)
        if static is None and origin is not None:
            static = version_name(origin)
    known = static is not None or not versions
    found = {"static": _described(store, static)} if known else {}
    if adapted is not None:
        found |= dict.fromkeys(("adapted", "policy"), _described(store, adapted))
    return found


def check_modes(
    chosen: Sequence[str] | None, known: Sequence[str], drafts: dict[str, dict[str, Any]], state: Path
) -> tuple[str, ...]:
    """The modes to measure: `chosen`, None: plain decoding and whatever there is a draft for.

    Raises UsageError for a mode that is none, that is named twice, or that has no draft.
    """
    modes = tuple(chosen or ("plain", *drafts))
    if "static" not in drafts and "static" in (chosen or ("static",)):
        raise UsageError(
            "the draft from before any adaptation is not known",
            why=f"it is no longer in {state / 'drafts'}",
            remedy="name one with --static, or leave it out with --modes plain,adapted,policy",
        )
    for mode in modes:
        if mode not in known:
            raise UsageError(f"--modes: there is no mode {mode!r}", remedy=f"there are {', '.join(known)}")
        if mode != "plain" and mode not in drafts:
            raise UsageError(
                f"there is no adapted draft to measure as {mode}",
                why=f"{state / 'drafts'} holds none",
                remedy="name an appliance with --state-dir, or a draft with --adapted",
            )
    if len(set(modes)) < len(modes):
        raise UsageError(f"--modes {','.join(modes)} names one twice")
    return modes


def _described(store: DraftStore, wanted: str | None) -> dict[str, Any]:
    if wanted is not None and re.fullmatch(r"v?\d+", wanted):
        version = parse_version(wanted)
        store.manifest(version)  # says that there is none
        return {"draft": str(store.path(version)), "sha256": digest(store.path(version) / WEIGHTS_FILE)}
    weights = Path(wanted).expanduser() / WEIGHTS_FILE if wanted else None
    return {"draft": wanted, "sha256": digest(weights) if weights and weights.is_file() else None}


def digest(file: Path) -> str:
    """Its sha256. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
