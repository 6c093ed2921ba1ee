"""Which drafts of a state folder a matrix compares, also after some of them were removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tide_cli.bench.drafts import check_modes, choose_drafts
from tide_cli.bench.matrix import MODES
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import UsageError
from tide_cli.paths import Paths

Chosen = Callable[..., dict[str, str | None]]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """An appliance whose v0001 and v0002 were trained one from the other; the draft that it began with is v0000."""
    made = Paths.under(tmp_path / "state", tmp_path / "cache")
    draft = tmp_path / "draft"
    draft.mkdir()
    for name in ("model.safetensors", "config.json"):
        (draft / name).write_text("{}")
    for parent in (None, 0, 1):
        DraftStore(made.drafts).publish(
            draft, parent=parent, target="t", target_revision="r", vocab_map_hash="h", samples=0, tokens=0, gate=None
        )
    return made


@pytest.fixture
def chosen(paths: Paths) -> Chosen:
    """Mode to the name of its draft's folder."""

    def choose(static: str | None = None, adapted: str | None = None) -> dict[str, str | None]:
        found = choose_drafts(paths, static, adapted)
        return {mode: one["draft"] and Path(one["draft"]).name for mode, one in found.items()}

    return choose


def test_static_is_the_draft_that_the_others_come_from(paths: Paths, chosen: Chosen) -> None:
    assert chosen() == {"static": "v0000", "adapted": "v0002", "policy": "v0002"}
    for version in (1, 2):
        DraftStore(paths.drafts).remove(version)
    assert chosen() == {"static": "v0000"}
    DraftStore(paths.drafts).remove(0)
    assert chosen() == {"static": None}  # the target's own


@pytest.mark.parametrize("removed", [(0,), (0, 1)])
def test_an_adapted_draft_is_never_taken_for_static(paths: Paths, chosen: Chosen, removed: tuple[int, ...]) -> None:
    for version in removed:
        DraftStore(paths.drafts).remove(version)
    assert chosen() == {"adapted": "v0002", "policy": "v0002"}
    assert chosen("someone/else") == {"static": "else", "adapted": "v0002", "policy": "v0002"}
    assert chosen("v0002", "v0002") == dict.fromkeys(("static", "adapted", "policy"), "v0002")
    drafts = choose_drafts(paths, None, None)
    for wanted in (None, ["plain", "static"]):
        with pytest.raises(UsageError, match="from before any adaptation is not known") as refused:
            check_modes(wanted, MODES, drafts, paths.state)
        assert "--static" in (refused.value.remedy or "")
    assert check_modes(["plain", "adapted"], MODES, drafts, paths.state) == ("plain", "adapted")


def test_every_mode_with_a_draft_is_measured_unless_others_are_named(paths: Paths) -> None:
    drafts = choose_drafts(paths, None, None)
    assert check_modes(None, MODES, drafts, paths.state) == ("plain", "static", "adapted", "policy")
    assert check_modes(["policy", "plain"], MODES, drafts, paths.state) == ("policy", "plain")
