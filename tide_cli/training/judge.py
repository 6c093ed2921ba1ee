"""The gate with figures: candidate and served draft walk the same held-out samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tide_cli.adaptation.gate import MINIMUM_SAMPLES, GateDecision, Walk, decide, gain_lower_bound, gate_rules
from tide_cli.adaptation.pool import PoolDecision, choose_version, walked_enough
from tide_cli.spool.samples import Sample
from tide_cli.training.batches import Ref
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import load_draft
from tide_cli.training.kept import ReadDraft
from tide_cli.training.material import Material
from tide_cli.training.trainer import DraftTrainer
from tide_cli.training.walk import predicted, walk

_NEWEST = 24  # samples on which kept drafts are compared: few, for the traffic has just changed


@dataclass(frozen=True)
class Verdict:
    """The gate's decision; clearly_worse: the served draft would pass against the candidate by the same measure.

    decided_from: what the gate was asked, as its event holds it: `rules`, and `input`, each walk as [tokens, rounds].
    """

    decision: GateDecision
    clearly_worse: bool
    decided_from: Mapping[str, Any]


def held_out(material: Material, since: float) -> tuple[list[Sample], list[Sample]]:
    """(newest, old): what a gate walks, as far as it can still be read. since: see `Material.held_out`."""
    newest, old = ([sample for sample in readable(refs) if predicted(sample.info)] for refs in material.held_out(since))
    return newest, old


def judge(
    config: TrainingConfig,
    trainer: DraftTrainer,
    newest: Sequence[Sample],
    old: Sequence[Sample],
    served: Mapping[str, Tensor],
    check: Callable[[], None],
) -> Verdict:
    """Walk both drafts as they are or would be published, and decide. `check` may raise between samples.

    newest, old: held-out samples, each with something to predict.
    """
    both: list[tuple[list[Walk], list[Walk]]] = []
    for tensors in (trainer.tensors(), served):
        load_draft(trainer.walker, tensors)
        both.append((walks(config, trainer, newest, check), walks(config, trainer, old, check)))
    (candidate, old_candidate), (now, old_now) = both
    rules, domains = gate_rules(config), [sample.info.domain or None for sample in newest]
    decision = decide(candidate, now, old_candidate=old_candidate, old_served=old_now, domains=domains, **rules)
    walked = {"candidate": candidate, "served": now, "old_candidate": old_candidate, "old_served": old_now}
    given = {name: [[one.tokens, one.rounds] for one in walks] for name, walks in walked.items()}
    enough = len(candidate) >= MINIMUM_SAMPLES
    loss = gain_lower_bound(now, candidate, confidence=rules["confidence"], seed=rules["seed"]) if enough else 0.0
    return Verdict(decision, loss > rules["margin"], {"rules": rules, "input": {**given, "domains": domains}})


def choose(
    config: TrainingConfig,
    trainer: DraftTrainer,
    material: Material,
    drafts: Mapping[int, ReadDraft],
    served: int,
    check: Callable[[], None],
) -> PoolDecision:
    """Walk kept drafts, the served one first, over the newest samples, and choose. `check` may raise meanwhile.

    drafts: each is read when its turn comes, and given up before the next one's, so that memory holds one at a time.
    """
    samples = readable(material.newest(_NEWEST))
    walked: dict[int, list[Walk]] = {}
    begun = time.monotonic()
    for version, read in drafts.items():
        if walked_enough(len(walked) - 1, time.monotonic() - begun):
            break
        check()
        if _loaded(trainer, read):
            walked[version] = walks(config, trainer, samples, check)
    now = walked.pop(served)
    return choose_version(walked, now, **gate_rules(config))  # without old samples the floor asks for nothing


def _loaded(trainer: DraftTrainer, read: ReadDraft) -> bool:
    """Whether there is such a draft, which is in `trainer.walker` then."""
    if (tensors := read()) is None:
        return False
    load_draft(trainer.walker, tensors)
    return True


def rounded(decision: GateDecision) -> dict[str, Any]:
    """A decision's figures, as events, manifests and records have them."""
    bound = decision.lower_bound
    return {
        "candidate_al": round(decision.candidate_al, 4),
        "served_al": round(decision.served_al, 4),
        "gain": round(decision.gain, 4),
        "lower_bound": None if bound is None else round(bound, 4),
        "samples": decision.samples,
        "domains": {name: round(gain, 4) for name, gain in decision.domains.items()},
        "reason": decision.reason,
    }


def readable(refs: Sequence[Ref]) -> list[Sample]:
    """Those that are still stored, in memory."""
    return [sample for ref in refs if (sample := ref.read()) is not None]


def walks(
    config: TrainingConfig, trainer: DraftTrainer, samples: Sequence[Sample], check: Callable[[], None]
) -> list[Walk]:
    """Of the draft in `trainer.walker`, over samples that hold something to predict. `check` may raise between them."""
    found = []
    for sample in samples:
        check()
        if (walked := walk(trainer.walker, sample, config.draft_steps)) is not None:
            found.append(walked)
    return found
