"""The known targets: one TOML file each in configs/, which is installed as tide_cli/configs."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli.targets.shape import DraftShape, TargetShape

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class KnownTarget:
    """What configs/<name>.toml says. Either a GGUF file inside a Python package or a hub id."""

    name: str
    title: str
    license: str
    hub_id: str | None = None
    revision: str | None = None
    gguf_package: str | None = None  # import name of the package that carries the weights
    gguf_file: str | None = None
    gguf_sha256: str | None = None
    draft_hub_id: str | None = None  # published EAGLE3 draft; None: TIDE makes a fresh one
    sglang_arguments: tuple[str, ...] = ()
    shape: TargetShape | None = None  # the table [shape], with [draft] beside it where the draft's own shape is known


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
        found[path.stem] = KnownTarget(name=path.stem, **fields)
    return found


def _shape(target: dict[str, Any] | None, draft: dict[str, Any] | None) -> TargetShape | None:
    if target is None:
        return None
    return TargetShape(**target, draft=DraftShape(hidden_size=target["hidden_size"], **draft) if draft else None)
