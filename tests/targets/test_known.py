"""What configs/*.toml name on the hub, and the troubles they tell of."""

from __future__ import annotations

import re

from tide_cli.targets.known import known_targets, pinned_revision

KNOWN = known_targets()


def test_revisions_are_whole_commits() -> None:
    commits = {hub_id: commit for target in KNOWN.values() for hub_id, commit in target.revisions.items()}
    assert all(commit is None or re.fullmatch("[0-9a-f]{40}", commit) for commit in commits.values())
    assert all(commits[target.hub_id] for target in KNOWN.values() if target.hub_id)
    assert pinned_revision("openai/gpt-oss-120b") == KNOWN["gpt-oss-120b"].revision
    assert pinned_revision("nvidia/gpt-oss-120b-Eagle3-long-context") is not None
    assert pinned_revision("some/thing") is None


def test_troubles_belong_to_a_pair() -> None:
    for target in KNOWN.values():
        for trouble in target.troubles:
            assert re.fullmatch(r"[\w-]+/[\w.-]+#\d+", trouble.issue)
            assert trouble.when
            assert trouble.what
            assert trouble.tide
    target = KNOWN["gpt-oss-120b"]
    shared = target.troubles_with("nvidia/gpt-oss-120b-Eagle3-long-context")
    assert [trouble.issue for trouble in shared] == ["sgl-project/sglang#27829"]
    assert target.troubles_with("some/draft") == []
    own = {trouble.issue for trouble in KNOWN["qwen3-8b"].troubles_with(None)}
    assert own == {"sgl-project/SpecForge#249"}
