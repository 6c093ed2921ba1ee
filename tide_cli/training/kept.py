"""Which kept versions are walked beside the served one, and their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tide_cli.adaptation.pool import Kept, walk_limit, walk_order
from tide_cli.drafts.config import other_build
from tide_cli.drafts.describe import read_config
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import check_draft, check_vocabulary_map, draft_kinds, read_draft
from tide_cli.errors import TideError


def read_version(store: DraftStore, version: int) -> dict[str, Any]:
    """Its tensors. TideError where it is missing or damaged."""
    store.verify(version)
    return read_draft(store.path(version))


def drafts_to_walk(
    store: DraftStore, served: int, among: Sequence[int] | None, figures: Mapping[str, Mapping[str, float]]
) -> dict[int, dict[str, Any]]:
    """The served version's tensors and those of the kept ones that are to be walked.

    among: the versions to be tried, None for those that promise to differ, without those that are marked bad. figures:
    number of a version to its acceptance length by condition, where some are known. What the engine would refuse is
    left out. TideError where the served version is damaged.
    """
    drafts = {served: read_version(store, served)}
    expected, config = draft_kinds(drafts[served]), read_config(store.path(served))
    if among is None:
        kept = []
        for version in store.versions():
            with suppress(TideError):
                kept.append(Kept(version, store.manifest(version).parent, figures.get(str(version), {})))
        limit = walk_limit(store.size(served))
        among = walk_order(kept, served, limit, store.marks().bad).versions
    for version in among:
        with suppress(TideError):
            tensors = read_version(store, version)
            check_draft(tensors, expected)
            check_vocabulary_map(tensors["d2t"], tensors["t2d"])
            if other_build(config, read_config(store.path(version))) is None:
                drafts[version] = tensors
    return drafts
