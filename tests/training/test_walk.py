"""The walk against decoding round by round, each chain a plain causal pass over everything that is in its cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from specforge.modeling.draft import Eagle3DraftModel
from tiny_target import Target, tiny_config
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tide_cli.drafts.tensors import read_draft
from tide_cli.hardware import memory
from tide_cli.spool.samples import Sample
from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import publish_day_zero
from tide_cli.training.draft_model import build_draft, load_draft
from tide_cli.training.trainer import DraftTrainer
from tide_cli.training.walk import accepted_drafts, walk


def _propose(draft: Eagle3DraftModel, aux: Tensor, tokens: Tensor, committed: int, steps: int) -> list[int]:
    """Drafts after tokens[: committed + 1], with the target's states of tokens[:committed]."""
    hidden = draft.project_hidden_states(aux[None, :committed])
    embeds = draft.embed_input_ids(tokens[None, 1 : committed + 1])
    proposed: list[int] = []
    for _ in range(steps):
        positions = torch.arange(hidden.shape[1])[None]
        last = draft.midlayer(input_emb=embeds, hidden_states=hidden, position_ids=positions)[:, -1:]
        token = draft.compute_logits(last).argmax(-1)[0, 0]
        token = token + draft.d2t[token]
        proposed.append(int(token))
        hidden = torch.cat([hidden, last], 1)
        embeds = torch.cat([embeds, draft.embed_input_ids(token[None, None])], 1)
    return proposed


def _decode(draft: Eagle3DraftModel, sample: Sample, steps: int) -> tuple[int, int]:
    text, committed, rounds = sample.tokens, sample.info.prompt_tokens, 0
    while committed < len(text) - 1:
        accepted = 0
        for token in _propose(draft, sample.aux.float(), text, committed, steps):
            position = committed + 1 + accepted
            if position >= len(text) or token != text[position]:
                break
            accepted += 1
        committed += accepted + 1
        rounds += 1
    return len(text) - sample.info.prompt_tokens, rounds


@pytest.fixture(scope="module")
def trained(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Eagle3DraftModel:
    """A draft that has learnt a little, so that chains of every length occur."""
    config = tiny_config(target, tmp_path_factory.mktemp("walk"))
    publish_day_zero(config)
    trainer = DraftTrainer(config, config.drafts / "v0000")
    samples = target.samples(8)
    for _ in range(30):
        trainer.step(samples)
    load_draft(trainer.walker, trainer.tensors())
    return trainer.walker


@pytest.mark.parametrize("steps", [1, 3, 5])
@torch.no_grad()
def test_a_walk_counts_the_rounds_of_real_decoding(trained: Eagle3DraftModel, target: Target, steps: int) -> None:
    found, expected = [], []
    for sample in target.samples(5, seed=1):
        walked = walk(trained, sample, steps)
        assert walked is not None
        found.append((walked.tokens, walked.rounds))
        expected.append(_decode(trained, sample, steps))
    assert found == expected
    tokens, rounds = (sum(column) for column in zip(*found, strict=True))
    assert 1.05 < tokens / rounds <= steps + 1


@pytest.fixture(scope="module")
def long(target: Target) -> tuple[Tensor, Tensor]:
    """Tokens and states of several texts in one, with hits of every depth in it."""
    samples = target.samples(8, seed=2)
    return torch.cat([sample.tokens for sample in samples]), torch.cat([sample.aux for sample in samples])


@given(at_once=st.integers(1, 600), start=st.integers(0, 200))
@example(at_once=1, start=0)
@example(at_once=1, start=200)
@example(at_once=10**6, start=3)
@settings(max_examples=20, deadline=None)
def test_rows_in_parts_are_accepted_as_all_at_once(
    trained: Eagle3DraftModel, long: tuple[Tensor, Tensor], at_once: int, start: int
) -> None:
    tokens, aux = long
    whole = accepted_drafts(trained, tokens, aux, 0, 4, at_once=len(tokens))
    assert set(whole.tolist()) == {0, 1, 2, 3, 4}
    assert torch.equal(accepted_drafts(trained, tokens, aux, start, 4, at_once), whole[start:])


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that is computed."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.elements = max(self.elements, made.numel())
        return made


def test_what_a_walk_computes_stays_below_its_bound(trained: Eagle3DraftModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four heads with a score for each pair of 2,000 tokens would be 16 million."""
    chance = torch.Generator().manual_seed(0)
    tokens, aux = torch.randint(3, 300, (2000,), generator=chance), torch.randn(2000, 3 * 64, generator=chance)
    monkeypatch.setattr(memory, "_WALK_ELEMENTS", 100_000)
    with Largest() as largest:
        accepted_drafts(trained, tokens, aux, 100, 3)
    assert 50_000 < largest.elements <= 100_000


def test_a_draft_without_knowledge_needs_a_round_for_each_token(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    embedding = target.model.get_input_embeddings().weight.detach()
    draft = build_draft(day_zero / "config.json", embedding, dtype=torch.float32, attention="sdpa")
    load_draft(draft, {n: t * 0 if n == "lm_head.weight" else t for n, t in read_draft(day_zero).items()})
    sample = target.samples(1)[0]
    assert 0 not in sample.tokens  # what a head of zeros proposes
    walked = walk(draft, sample, 3)
    assert walked is not None
    assert (walked.tokens, walked.rounds) == (int(sample.loss_mask.sum()), int(sample.loss_mask.sum()) - 1)


def test_nothing_to_predict_is_no_walk(trained: Eagle3DraftModel, target: Target) -> None:
    sample = target.samples(1)[0]
    prompt = sample.info.prompt_tokens
    for count in (prompt, prompt + 1):  # no answer, and one whose only row is that of the prefill's token
        short = {name: getattr(sample, name)[:count] for name in ("tokens", "loss_mask", "aux", "final")}
        assert walk(trained, replace(sample, info=replace(sample.info, tokens=count), **short), 3) is None


def test_a_sample_that_starts_inside_the_answer_is_walked(trained: Eagle3DraftModel, target: Target) -> None:
    sample = target.samples(1)[0]
    cut = sample.info.prompt_tokens + 2
    rest = {name: getattr(sample, name)[cut:] for name in ("tokens", "loss_mask", "aux", "final")}
    info = replace(sample.info, tokens=len(rest["tokens"]), prefix_missing=cut)
    walked = walk(trained, replace(sample, info=info, **rest), 3)
    assert walked is not None
    assert walked.tokens == len(sample.tokens) - cut - 1
