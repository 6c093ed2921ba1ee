"""Whether an engine that was built for one draft can take another one in its place. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tide_cli.drafts.checks import read_json
from tide_cli.drafts.config import other_build
from tide_cli.drafts.manifest import CONFIG_FILE
from tide_cli.drafts.tensors import TensorKind, draft_kinds, read_draft

# config.json, and name to kind of each tensor
Make = tuple[Mapping[str, Any], Mapping[str, TensorKind]]


def why_not_in_place(served: Path, other: Path) -> str | None:
    """Why a running engine cannot take the draft in one folder in the place of the other; None where it can.

    TideError where one cannot be read.
    """
    makes = [make_of(folder, read_draft(folder)) for folder in (served, other)]
    return other_make(*makes)


def make_of(folder: Path, tensors: Mapping[str, Tensor]) -> Make:
    """Of a draft folder with these tensors. TideError where its config.json cannot be read."""
    return read_json(folder / CONFIG_FILE, "serve another version"), draft_kinds(tensors)


def other_make(engine: Make, draft: Make) -> str | None:
    """What the engine was built with otherwise than a draft needs it; None for nothing."""
    if name := other_build(engine[0], draft[0]):
        return f"{name} in config.json is {str(draft[0].get(name))[:50]}, not {str(engine[0].get(name))[:50]}"
    for name in sorted(engine[1].keys() & draft[1].keys()):
        for part, own, other in zip(("shape", "dtype"), engine[1][name], draft[1][name], strict=True):
            if own != other:
                return f"the {part} of {name} is {_spelt(other)}, not {_spelt(own)}"
    odd = min(engine[1].keys() ^ draft[1].keys(), default=None)
    return odd and f"{odd} is {'missing' if odd in engine[1] else 'not known'}"


def _spelt(kind: object) -> str:
    return str(list(kind)) if isinstance(kind, tuple) else str(kind).removeprefix("torch.")
