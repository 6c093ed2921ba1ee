"""A version in figures, and two of them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tide_cli.drafts.manifest import CONFIG_FILE, damaged, version_name
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object


def describe(store: DraftStore, version: int) -> dict[str, Any]:
    """What manifest, configuration and marks say of a version. TideError where it is missing or damaged.

    lineage: names of the versions it descends from, its parent first; `gone` are those of them that were removed.
    bytes: on the disk. vocab_map.coverage: share of the target's tokens that it can propose, where a gate noted it.
    """
    manifest, config, marks = store.manifest(version), read_config(store.path(version)), store.marks()
    ancestors = lineage(store, version)
    gate = manifest.gate or {}
    return {
        "version": version_name(version),
        "pinned": version in marks.pinned,
        "bad": marks.bad.get(version),
        "target": manifest.target,
        "target_revision": manifest.target_revision,
        "created": manifest.created,
        "lineage": [version_name(v) for v in ancestors],
        "gone": [version_name(v) for v in ancestors if not store.path(v).is_dir()],
        "samples": manifest.samples,
        "tokens": manifest.tokens,
        "gate": manifest.gate,
        "vocab_map": {
            "hash": manifest.vocab_map_hash,
            "draft_tokens": config.get("draft_vocab_size"),
            "target_tokens": config.get("vocab_size"),
            "coverage": gate.get("coverage"),
        },
        "folder": str(store.path(version)),
        "bytes": store.size(version),
        "files": manifest.files,
    }


class VersionRows:
    """The newest versions in a few figures, for what asks every second: each manifest is read once."""

    def __init__(self, store: DraftStore) -> None:
        self._store = store
        self._known: dict[int, dict[str, Any]] = {}

    def newest(self, most: int = 8) -> list[dict[str, Any]]:
        """In ascending order: version, tokens, gain and acceptance_length of its gate, bad: why it was taken back.

        One that cannot be read is left out; None where there was no gate.
        """
        try:
            versions, bad = self._store.versions()[-most:], self._store.marks().bad
        except (OSError, TideError):
            return []
        self._known = {version: self._known.get(version) or self._row(version) for version in versions}
        return [row | {"bad": bad.get(version)} for version, row in self._known.items() if row]

    def _row(self, version: int) -> dict[str, Any]:
        try:
            manifest = self._store.manifest(version)
        except TideError:
            return {}
        gate = manifest.gate or {}
        figures = {"gain": gate.get("gain"), "acceptance_length": gate.get("candidate_al")}
        return {"version": version, "tokens": manifest.tokens, **figures}


def lineage(store: DraftStore, version: int) -> list[int]:
    """The ancestors of a version, its parent first, up to the first that has none or was removed."""
    ancestors: list[int] = []
    while True:
        try:
            parent = store.manifest(ancestors[-1] if ancestors else version).parent
        except TideError:
            return ancestors
        if parent is None or parent in ancestors:
            return ancestors
        ancestors.append(parent)


def compare(store: DraftStore, a: int, b: int) -> dict[str, Any]:
    """Two versions side by side: configuration, vocabulary map, gate figures, tensors. Reads both files; needs torch.

    tensors: name to ‖b - a‖ / ‖a‖, null where one of them has it in another shape or not at all.
    TideError where one is missing or damaged.
    """
    from tide_cli.drafts.tensors import read_draft, relative_changes

    manifests = [store.manifest(version) for version in (a, b)]
    configs = [read_config(store.path(version)) for version in (a, b)]
    names = sorted({*configs[0], *configs[1]})
    gates = [manifest.gate or {} for manifest in manifests]
    return {
        "a": version_name(a),
        "b": version_name(b),
        "config": {
            name: {"a": configs[0].get(name), "b": configs[1].get(name)}
            for name in names
            if configs[0].get(name) != configs[1].get(name)
        },
        "same_vocab_map": manifests[0].vocab_map_hash == manifests[1].vocab_map_hash,
        "gate": {
            name: {"a": gates[0].get(name), "b": gates[1].get(name)} for name in dict.fromkeys([*gates[0], *gates[1]])
        },
        "tensors": relative_changes(read_draft(store.path(a)), read_draft(store.path(b))),
    }


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a version. TideError where it is damaged."""
    path = folder / CONFIG_FILE
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise damaged(path, reason(error)) from None
