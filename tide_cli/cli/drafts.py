"""Commands about draft versions: which there are, what they are, which one is served."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Any

import typer

from tide_cli.cli.app import app, command_group
from tide_cli.cli.output import complain, print_json, print_table, words_of
from tide_cli.cli.running import order
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import NotRunningError, TideError
from tide_cli.hints import spelt
from tide_cli.paths import Paths
from tide_cli.printable import many, size_words
from tide_cli.supervisor.control_client import ask

drafts_app = command_group("Versions of the draft.")
app.add_typer(drafts_app, name="drafts")

Version = Annotated[str, typer.Argument(help="For example v0007 or 7.")]


@drafts_app.command("ls")
def ls(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """List the published versions.

    tokens: that a version was trained on since its parent, each pass over a sample counted.
    """
    from tide_cli.drafts.store import DraftStore, version_name
    from tide_cli.supervisor.journal import read_served

    paths = appliance_paths(state_dir, config)
    store, served = DraftStore(paths.drafts), read_served(paths.database)
    marks = store.marks()
    rows: list[dict[str, Any]] = []
    for version in store.versions():
        row: dict[str, Any] = {"version": version_name(version), "served": version == served}
        row |= {"pinned": version in marks.pinned, "bad": marks.bad.get(version)}
        try:
            manifest = store.manifest(version)
        except TideError as error:
            rows.append({**row, "error": error.lines()[0]})
            continue
        row |= {
            "parent": None if manifest.parent is None else version_name(manifest.parent),
            "target": manifest.target,
            "samples": manifest.samples,
            "tokens": manifest.tokens,
            "gain": (manifest.gate or {}).get("gain"),
            "created": manifest.created,
            "bytes": store.size(version),
            "error": None,
        }
        rows.append(row)
    if json:
        print_json(rows)
        return
    if not rows:
        print(f"no versions yet in {store.root}")
        return
    print_table(
        ("version", "state", "parent", "tokens", "gain", "created", "error"),
        [
            (
                row["version"],
                ", ".join(name for name in ("served", "pinned", "bad") if row[name]) or None,
                row.get("parent"),
                f"{row['tokens']:,}" if "tokens" in row else None,
                None if row.get("gain") is None else f"{row['gain']:+.3f}",
                _moment(row["created"]) if "created" in row else None,
                row["error"],
            )
            for row in rows
        ],
    )


@drafts_app.command("show")
def show(version: Version, state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Descent, training, gate figures and files of a version."""
    from tide_cli.drafts.describe import describe
    from tide_cli.drafts.store import DraftStore, parse_version
    from tide_cli.supervisor.journal import read_served

    number, paths = parse_version(version), appliance_paths(state_dir, config)
    found = describe(DraftStore(paths.drafts), number) | {"served": read_served(paths.database) == number}
    if json:
        print_json(found)
        return
    vocab_map, gone = found["vocab_map"], set(found["gone"])
    ancestors = [f"{name} (removed)" if name in gone else name for name in found["lineage"]]
    rows = [
        ("state", ", ".join(name for name in ("served", "pinned", "bad") if found[name]) or None),
        ("why bad", found["bad"]),
        ("created", _moment(found["created"])),
        ("target", f"{found['target']} ({found['target_revision']})"),
        ("descends from", " < ".join(ancestors) or None),
        ("trained on", f"{many(found['tokens'], 'token')}, {many(found['samples'], 'sample')}, each pass counted"),
        *((f"gate: {words_of(name)}", _gate_figure(value)) for name, value in (found["gate"] or {}).items()),
        (
            "proposes from",
            f"{_number(vocab_map['draft_tokens'])} of the target's {_number(vocab_map['target_tokens'])} tokens",
        ),
        ("vocabulary map", vocab_map["hash"]),
        *((name, f"sha256 {digest}") for name, digest in found["files"].items()),
        ("size", size_words(found["bytes"])),
        ("folder", found["folder"]),
    ]
    print_table(("version", found["version"]), [row for row in rows if row[1] is not None])


@drafts_app.command("diff")
def diff(
    a: Annotated[str, typer.Argument(help="A version.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """What differs between two versions.

    Configuration, gate figures, vocabulary map, and by how much each tensor has changed, relative to its norm in A.
    """
    from tide_cli.drafts.describe import compare
    from tide_cli.drafts.store import DraftStore, parse_version

    numbers = parse_version(a), parse_version(b)
    found = compare(DraftStore(appliance_paths(state_dir, config).drafts), *numbers)
    if json:
        print_json(found)
        return
    rows: list[tuple[Any, ...]] = [
        (f"config: {name}", pair["a"], pair["b"], None) for name, pair in found["config"].items()
    ]
    rows += [
        (f"gate: {words_of(name)}", _gate_figure(pair["a"]), _gate_figure(pair["b"]), None)
        for name, pair in found["gate"].items()
        if name != "reason"
    ]
    rows.append(("vocabulary map", None, None, "the same" if found["same_vocab_map"] else "another"))
    rows += [(name, None, None, _change(change)) for name, change in found["tensors"].items()]
    print_table(("", found["a"], found["b"], "change"), rows)


def _number(value: Any) -> str:
    """Of a configuration that anyone may have written."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _gate_figure(value: Any) -> Any:
    """As it stands in the manifest; the gains by domain in one line, None where there are none."""
    if not isinstance(value, dict):
        return value
    gains = ((name, f"{gain:+.3f}" if isinstance(gain, int | float) else gain) for name, gain in value.items())
    return ", ".join(f"{name} {gain}" for name, gain in gains) or None


def _change(relative: float | None) -> str:
    return "not comparable" if relative is None else "none" if relative == 0 else f"{100 * relative:.2f} %"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@drafts_app.command("use")
def use(version: Version, state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Serve a version, whatever the gate says.

    Without a running appliance, from the next start on.
    """
    from tide_cli.drafts.store import parse_version

    _serve(appliance_paths(state_dir, config), parse_version(version), json)


@drafts_app.command("rollback")
def rollback(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Serve the one that was served before.

    Twice leads back to the present one, unless it was only asked for and never served. A version that is marked bad is
    none to go back to.
    """
    from tide_cli.drafts.manifest import version_name
    from tide_cli.drafts.store import DraftStore
    from tide_cli.supervisor.journal import read_served
    from tide_cli.supervisor.keeping import previously_served

    paths = appliance_paths(state_dir, config)
    served, previous = read_served(paths.database), previously_served(paths)
    if previous is None:
        now = "nothing was ever served" if served is None else f"none was served before {version_name(served)}"
        raise TideError("there is no version to go back to", why=now, remedy="`tide drafts ls` lists the versions")
    if previous not in DraftStore(paths.drafts).versions():
        why = f"{version_name(previous)} was removed"
        raise TideError("there is no version to go back to", why=why, remedy="`tide drafts use VERSION` serves another")
    if why_bad := DraftStore(paths.drafts).marks().bad.get(previous):
        name = version_name(previous)
        raise TideError(
            "there is no version to go back to",
            why=f"{name}, which was served before, is marked bad: {why_bad}",
            remedy=f"`tide drafts use {name}` serves it all the same, `tide drafts ls` lists the others",
        )
    _serve(paths, previous, json)


def _serve(paths: Paths, version: int, json: bool) -> None:
    """Have the running appliance swap, or note it for the next start; prints which of the two was done."""
    from tide_cli.drafts.manifest import version_name
    from tide_cli.drafts.store import DraftStore

    try:
        text, now = order(paths, "/v1/drafts/use", {"version": version}), True
    except NotRunningError:
        DraftStore(paths.drafts).verify(version)
        _serve_from_next_start(paths, version)
        text, now = f"{version_name(version)} will be served from the next `tide up` on", False
    if json:
        print_json({"version": version_name(version), "now": now, "text": text})
    else:
        print(spelt(text))
    with suppress(TideError):  # the order itself has been carried out
        if now and ask(paths.socket, "GET", "/v1/status")["training"]["running"]:
            complain(["a training cycle runs, whose draft may replace it", "`tide train pause` ends it"])
        if why := DraftStore(paths.drafts).marks().bad.get(version):
            complain([f"{version_name(version)} is marked bad: {why}", "`tide drafts ls` lists the others"])


def _serve_from_next_start(paths: Paths, version: int) -> None:
    from tide_cli.drafts.manifest import version_name
    from tide_cli.supervisor.journal import Journal
    from tide_cli.supervisor.lock import StateLock

    lock = StateLock(paths.lock, command="drafts use")
    try:
        journal = Journal(paths.database)
        journal.serve(version)
        journal.note("use", f"{version_name(version)} asked for by the user", {"version": version})
        journal.close()
    finally:
        lock.release()
