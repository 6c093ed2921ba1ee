"""The known targets: one TOML file each in configs/, which is installed as tide_cli/configs."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

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
        found[path.stem] = KnownTarget(name=path.stem, **fields)
    return found
