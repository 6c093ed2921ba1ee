"""Commands that change the store of draft versions or carry versions in and out: pin, unpin, export, import, gc."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tide_cli.cli.drafts import Version, drafts_app
from tide_cli.cli.output import complain, print_json, print_table
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths, outside, path_argument, settings_for
from tide_cli.errors import NotRunningError, TideError, UsageError
from tide_cli.paths import Paths
from tide_cli.printable import size_words
from tide_cli.supervisor.control_client import ask

if TYPE_CHECKING:
    from tide_cli.drafts.store import DraftStore

_IMPORT_REMEDY = "`tide drafts import DIR` takes another one: EAGLE3, of the same target, with config.json and weights"


@drafts_app.command("pin")
def pin(version: Version, state_dir: StateDir = None, config: Config = None) -> None:
    """Keep a version whatever `tide drafts gc` is told."""
    _pin(version, state_dir, config, pinned=True)


@drafts_app.command("unpin")
def unpin(version: Version, state_dir: StateDir = None, config: Config = None) -> None:
    """Let `tide drafts gc` remove a version again."""
    _pin(version, state_dir, config, pinned=False)


def _pin(version: str, state_dir: Path | None, config: Path | None, pinned: bool) -> None:
    from tide_cli.drafts.store import DraftStore, parse_version, version_name

    number = parse_version(version)
    DraftStore(appliance_paths(state_dir, config).drafts).pin(number, pinned)
    complain([f"{version_name(number)} is {'pinned' if pinned else 'not pinned any more'}"])


@drafts_app.command("export")
def export(
    version: Version,
    folder: Annotated[Path, path_argument("A new or empty folder.")],
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Write a version as a folder that SGLang can load.

    config.json and model.safetensors are what --speculative-draft-model-path takes. Only you can read them, as in the
    store: they were learned from your traffic.
    """
    from tide_cli.drafts.export import export_draft
    from tide_cli.drafts.store import DraftStore, parse_version, version_name

    number = parse_version(version)
    paths = appliance_paths(state_dir, config)
    export_draft(DraftStore(paths.drafts), number, outside(paths, folder))
    complain([f"{version_name(number)} is in {folder}; SGLang takes it with --speculative-draft-model-path"])


@drafts_app.command("import")
def import_(
    folder: Annotated[Path, path_argument("Folder of an EAGLE3 draft.")],
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Check a draft made elsewhere and add it.

    It becomes a version without a parent, and is not served until `tide drafts use` says so.
    """
    from tide_cli.drafts.describe import read_config
    from tide_cli.drafts.store import DraftStore, version_name
    from tide_cli.supervisor.journal import read_served

    if not folder.is_dir():
        raise UsageError(f"{folder} is not imported", why="there is no such folder", remedy=_IMPORT_REMEDY)
    paths = appliance_paths(state_dir, config)
    store = DraftStore(paths.drafts)
    newest = store.latest()
    if newest is None:
        why = "the store is empty, so nothing says which target it is for"
        remedy = f"`tide up --draft {shlex.quote(str(folder))}` starts an appliance with it"
        raise TideError(f"{folder} is not imported", why=why, remedy=remedy)
    from tide_cli.drafts.checks import publish_foreign
    from tide_cli.drafts.make import why_not_in_place

    known, beside = store.manifest(newest), read_config(store.path(newest))
    shared = ("hidden_size", "vocab_size", "max_position_embeddings")  # of a draft and of its target alike
    version = publish_foreign(
        folder,
        store,
        target=known.target,
        target_revision=known.target_revision,
        target_config={name: beside[name] for name in shared if name in beside},
        remedy=_IMPORT_REMEDY,
        beside=beside,
        say=lambda line: complain([line]),
    )
    served = read_served(paths.database)
    why = why_not_in_place(store.path(served), store.path(version)) if served in store.versions() else None
    if json:
        print_json({"version": version_name(version), "swappable": why is None})
    else:
        print(version_name(version))
    weights = _weights(store, version)
    same = [other for other in store.versions() if other != version and _weights(store, other) == weights]
    if same:
        complain([f"its weights are those of {' and '.join(map(version_name, same))}"])
    if why is None:
        complain([f"it is not served: `tide drafts use {version_name(version)}` serves it"])
    elif served is not None:
        complain(
            [
                f"a running engine cannot take it in the place of {version_name(served)}: {why}",
                f"serve it with `tide down`, `tide drafts use {version_name(version)}`, `tide up`",
            ]
        )


def _weights(store: DraftStore, version: int) -> str | None:
    """Their sha256; None where the manifest is damaged."""
    from tide_cli.drafts.manifest import WEIGHTS_FILE

    try:
        return store.manifest(version).files.get(WEIGHTS_FILE)
    except TideError:
        return None


def _in_use(paths: Paths) -> Collection[int] | None:
    """Versions that a running appliance serves or is about to; None where it may choose any. TideError where one runs
    and does not say."""
    try:
        # one of an earlier TIDE says nothing
        in_use: Collection[int] | None = ask(paths.socket, "GET", "/v1/status")["drafts"].get("in_use", ())
    except NotRunningError:
        return ()
    return in_use


@drafts_app.command("gc")
def gc(
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Versions to keep.", show_default="the setting keep_drafts"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Remove old versions.

    Whatever --keep says, these stay: the served version, one about to be, the one served before, its parent, pinned
    ones, the first, the newest, and what training goes on from or `tide train replay` needs. Beyond those the best on
    each kind of recent traffic come first. A running appliance does the same after each swap, with the setting
    keep_drafts.
    """
    from tide_cli.drafts.store import DraftStore, version_name
    from tide_cli.supervisor.keeping import removals, retention

    paths = appliance_paths(state_dir, config)
    in_use = _in_use(paths)
    if in_use is None:
        why = "the appliance tries kept versions on the new traffic, and may serve any of them"
        raise TideError("nothing was removed", why=why, remedy="try again in a moment")
    if keep is None:
        keep = settings_for(state_dir, config).keep_drafts
    plan = retention(paths, keep, in_use)
    if dry_run:
        store = DraftStore(paths.drafts)
        going = [(version, store.size(version)) for version in plan.remove]
    else:
        going = list(removals(paths, plan, lambda: _in_use(paths)))
    rows = [{"version": version_name(version), "bytes": size} for version, size in going]
    kept = {version_name(version): plan.keep[version] for version in sorted(plan.keep)}
    if json:
        print_json({"dry_run": dry_run, "removed": rows, "kept": kept})
        return
    if not rows:
        print("nothing to remove")
    if not rows and not kept:
        return
    done = "would be removed" if dry_run else "removed"
    what = [(row["version"], f"{done}, {size_words(row['bytes'])}") for row in rows]
    print_table(("version", "what"), sorted([*what, *((name, f"stays: {why}") for name, why in kept.items())]))
