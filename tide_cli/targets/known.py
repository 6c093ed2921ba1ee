"""The known targets: one TOML file each in configs/, which is installed as tide_cli/configs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tide_cli.targets.shape import DraftShape, TargetShape

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Trouble:
    """A known trouble of a target or of its drafts: a table [[troubles]] of its TOML file.

    issue: where it is discussed, as `owner/repository#number`. when, what: the circumstances and what then happens.
    tide: what TIDE does about it, or why it can't. drafts: hub ids that it concerns; empty: whatever draft is served.
    """

    issue: str
    when: str
    what: str
    tide: str
    drafts: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownTarget:
    """What configs/<name>.toml says. Either a GGUF file inside a Python package or a hub id.

    revision, draft_revision, other_drafts: commits on the hub. other_drafts: drafts that may be chosen with --draft.
    """

    name: str
    title: str
    license: str
    hub_id: str | None = None
    revision: str | None = None
    gguf_package: str | None = None  # import name of the package that carries the weights
    gguf_file: str | None = None
    gguf_sha256: str | None = None
    draft_hub_id: str | None = None  # published EAGLE3 draft; None: TIDE makes a fresh one
    draft_revision: str | None = None
    other_drafts: dict[str, str] = field(default_factory=dict)
    sglang_arguments: tuple[str, ...] = ()
    model_type: str | None = None  # of its config.json
    shape: TargetShape | None = None  # the table [shape], with [draft] beside it where the draft's own shape is known
    troubles: tuple[Trouble, ...] = ()

    @property
    def revisions(self) -> dict[str, str | None]:
        """Every hub id that the file names, with its commit."""
        named = [(self.hub_id, self.revision), (self.draft_hub_id, self.draft_revision), *self.other_drafts.items()]
        return {hub_id: revision for hub_id, revision in named if hub_id}

    def describes(self, text: Mapping[str, Any]) -> bool:
        """Whether a config.json has the figures of this target, or of one trained from it."""
        if self.model_type is None or self.shape is None:
            return False
        shape, experts = self.shape, text.get("num_local_experts") or text.get("num_experts") or 0
        found = (*map(text.get, ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")), experts)
        return found == (self.model_type, shape.hidden_size, shape.layers, shape.vocab_size, shape.experts)

    def troubles_with(self, draft: str | None) -> list[Trouble]:
        """Those that concern the target with `draft` (as --draft takes it; None: its own)."""
        served = draft or self.draft_hub_id
        return [trouble for trouble in self.troubles if not trouble.drafts or served in trouble.drafts]


def configs_folder() -> Path:
    """configs/ of the checkout, or its copy inside an installed package."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def known_targets() -> dict[str, KnownTarget]:
    """Every known target by name, sorted."""
    found = {}
    for path in sorted(configs_folder().glob("*.toml")):
        with path.open("rb") as file:
            fields = tomllib.load(file)
        fields["sglang_arguments"] = tuple(fields.get("sglang_arguments", ()))
        fields["shape"] = _shape(fields.pop("shape", None), fields.pop("draft", None))
        fields["troubles"] = tuple(
            Trouble(**trouble | {"drafts": tuple(trouble.get("drafts", ()))}) for trouble in fields.get("troubles", ())
        )
        found[path.stem] = KnownTarget(name=path.stem, **fields)
    return found


def pinned_revision(hub_id: str) -> str | None:
    """The commit at which a hub id that configs/*.toml name is fetched; None for others: the newest."""
    for target in known_targets().values():
        if revision := target.revisions.get(hub_id):
            return revision
    return None


def _shape(target: dict[str, Any] | None, draft: dict[str, Any] | None) -> TargetShape | None:
    if target is None:
        return None
    return TargetShape(**target, draft=DraftShape(hidden_size=target["hidden_size"], **draft) if draft else None)
