"""A shift of language on the real target: what it is worth that the draft's vocabulary follows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from engines import Appliance, domain_prompts, in_parallel

from tide_cli.drafts.store import DraftStore
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import Sample

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]  # the first one starts the engine

DOMAIN, REQUESTS, HELD_OUT = "korean_chat", 24, 8
TOKENS, STEPS = 40, 32


def test_with_a_vocabulary_that_follows_the_traffic_more_can_be_accepted(
    appliance: Appliance, record_property: Callable[[str, object], None]
) -> None:
    """From the same draft, the same steps on the same samples, with the vocabulary kept and changed; then walked.

    So few steps teach the draft little, whatever its vocabulary: what is certain is that tokens outside the old one
    are proposed, and accepted.
    """
    from tide_cli.adaptation.vocabulary import better_vocabulary, coverage
    from tide_cli.training.batches import Ref, plan_pass
    from tide_cli.training.config import TrainingConfig
    from tide_cli.training.day_zero import special_tokens
    from tide_cli.training.draft_model import load_draft
    from tide_cli.training.trainer import DraftTrainer
    from tide_cli.training.walk import accepted_drafts, walk

    samples = captured(appliance, domain_prompts(DOMAIN, REQUESTS))
    held_out, training = samples[:HELD_OUT], samples[HELD_OUT:]
    config = TrainingConfig.from_json((appliance.state / "run" / "training.json").read_text())

    def trained(follow: bool) -> tuple[float, float, int]:
        """(coverage of the held-out tokens, acceptance length on them, accepted ones that the first draft lacks)"""
        trainer = DraftTrainer(config, DraftStore(config.drafts).path(0))
        size, lacking = len(trainer.draft.t2d), ~trainer.draft.t2d.clone()
        if follow:
            better = better_vocabulary(
                trainer.vocabulary.numpy(),
                counted(training, size),
                np.zeros(size, np.int64),
                old_share=0.0,
                special=special_tokens(config.target),
                wanted=1.0,
            )
            assert better is not None
            trainer.change_vocabulary(trainer.vocabulary.new_tensor(better))
        refs = [Ref(len(sample.tokens), lambda sample=sample: sample) for sample in training]
        chance, step = random.Random(0), 0
        while step < STEPS:
            for batch in plan_pass(refs, [], replay_share=0.0, batch_tokens=config.batch_tokens, rng=chance):
                trainer.step([ref.read() for ref in batch])
                step += 1
        load_draft(trainer.walker, trainer.tensors())
        walks = [walked for sample in held_out if (walked := walk(trainer.walker, sample, config.draft_steps))]
        length = sum(walked.tokens for walked in walks) / sum(walked.rounds for walked in walks)
        found = 0
        for sample in held_out:
            accepted = accepted_drafts(trainer.walker, sample.tokens, sample.aux, 0, steps=1)
            found += int((lacking[sample.tokens[2 : len(accepted) + 1]] & (accepted[:-1] > 0)).sum())
        return coverage(trainer.vocabulary.numpy(), counted(held_out, size)), length, found

    kept, changed = trained(follow=False), trained(follow=True)
    record_property(
        "vocabulary",
        "; ".join(
            f"{DOMAIN}, {name}: covers {covers:.3f}, acceptance length {length:.3f}, {found} tokens of the new ones"
            for name, (covers, length, found) in (("kept", kept), ("changed", changed))
        ),
    )
    assert changed[0] > kept[0]
    assert changed[2] > kept[2] == 0


def captured(appliance: Appliance, prompts: Sequence[list[dict[str, str]]]) -> list[Sample]:
    """What the spool holds of the prompts' answers, in its order; the domain's name tells them from other samples."""

    def ask(messages: list[dict[str, str]]) -> None:
        answer = appliance.http.post(
            "/v1/chat/completions",
            headers={"X-SMG-Routing-Key": DOMAIN},
            json={"model": "smollm2-135m", "messages": messages, "max_tokens": TOKENS, "temperature": 0},
        )
        assert answer.status_code == 200, answer.text

    in_parallel(4, [lambda messages=messages: ask(messages) for messages in prompts])
    reader = SpoolReader.open(appliance.state / "spool")
    deadline = time.monotonic() + 30
    while len(infos := [info for info in reader.samples() if info.domain == DOMAIN]) < len(prompts):
        assert time.monotonic() < deadline  # the last one becomes visible just after its answer
        time.sleep(0.1)
    samples = [reader.read(info) for info in infos]
    assert None not in samples
    return samples


def counted(samples: Sequence[Sample], vocab_size: int) -> np.ndarray:
    """[V] int64: how often each of the target's tokens was generated."""
    ids = [sample.tokens[sample.loss_mask.bool()].numpy() for sample in samples]
    return np.bincount(np.concatenate(ids), minlength=vocab_size)
