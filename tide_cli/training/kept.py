"""Which kept versions are walked beside the served one, and how each is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tide_cli.adaptation.pool import MOST_WALKED, Kept, walk_order
from tide_cli.drafts.config import other_build
from tide_cli.drafts.describe import read_config
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import TensorKind, check_draft, check_vocabulary_map, draft_kinds, read_draft
from tide_cli.errors import TideError

ReadDraft = Callable[[], dict[str, Any] | None]  # its tensors, None where it is not to be walked


def read_version(store: DraftStore, version: int) -> dict[str, Any]:
    """Its tensors. TideError where it is missing or damaged."""
    store.verify(version)
    return read_draft(store.path(version))


def drafts_to_walk(
    store: DraftStore,
    served: int,
    tensors: dict[str, Any],
    among: Sequence[int] | None,
    figures: Mapping[str, Mapping[str, float]],
) -> dict[int, ReadDraft]:
    """How the served version and the kept ones that are to be walked are read, in this order; none is read yet.

    tensors: of the served version. among: the versions to be tried, None for those that promise to differ, without
    those that are marked bad. figures: number of a version to its acceptance length by condition, where some are known.
    What is damaged, or what the engine would refuse, reads as None.
    """
    if among is None:
        kept = []
        for version in store.versions():
            with suppress(TideError):
                kept.append(Kept(version, store.manifest(version).parent, figures.get(str(version), {})))
        among = walk_order(kept, served, MOST_WALKED, store.marks().bad).versions
    expected, config = draft_kinds(tensors), read_config(store.path(served))
    reads: dict[int, ReadDraft] = {served: lambda: tensors}
    for version in among:
        reads.setdefault(version, partial(_read_fitting, store, version, expected, config))
    return reads


def _read_fitting(
    store: DraftStore, version: int, expected: Mapping[str, TensorKind], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    with suppress(TideError):
        tensors = read_version(store, version)
        check_draft(tensors, expected)
        check_vocabulary_map(tensors["d2t"], tensors["t2d"])
        if other_build(config, read_config(store.path(version))) is None:
            return tensors
    return None
