"""A target small enough for a test, with real weights, a real checkpoint folder and real greedy text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tide_cli.spool.layout import RowLayout
from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.spool.writer import SpoolWriter
from tide_cli.training.config import TrainingConfig

HIDDEN, VOCABULARY = 64, 300


@dataclass(frozen=True)
class Target:
    folder: Path
    model: LlamaForCausalLM

    def sample(self, sample_id: int, prompt: list[int], generate: int) -> Sample:
        """Greedy text after `prompt` with the states that the engine would store: the last token has no row."""
        with torch.no_grad():
            text = self.model.generate(
                torch.tensor([prompt]), max_new_tokens=generate, min_new_tokens=generate, do_sample=False
            )
            states = self.model(text, output_hidden_states=True).hidden_states
        layers, rows = self.model.config.num_hidden_layers, text.shape[1] - 1
        aux = torch.cat([states[2], states[layers // 2], states[layers - 3]], -1)[0, :rows]
        info = SampleInfo(sample_id, "run", 0, 0.0, rows, len(prompt), 0, generate, 0, "train", 0, ())
        mask = torch.arange(rows) >= len(prompt)
        return Sample(info, text[0, :rows], mask, aux.bfloat16(), states[-1][0, :rows].bfloat16())

    def samples(self, count: int, seed: int = 0) -> list[Sample]:
        """Samples of various lengths after random prompts."""
        generator = torch.Generator().manual_seed(seed)
        made = []
        for number in range(count):
            prompt = torch.randint(3, VOCABULARY, (4 + number % 5,), generator=generator).tolist()
            made.append(self.sample(number + 1, prompt, 24 + 4 * (number % 3)))
        return made


def make_target(folder: Path) -> Target:
    """A six-layer Llama whose layers are faint and whose head is its embedding in another order.

    Its greedy text is a walk through a permutation of the vocabulary: every token follows from the one before, which a
    draft learns in seconds, for tokens it has not seen in training too.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layers" in name and parameter.dim() > 1:
                parameter.mul_(0.3)
        model.model.embed_tokens.weight.normal_()
        model.lm_head.weight.copy_(model.model.embed_tokens.weight[torch.randperm(VOCABULARY)])
    model.save_pretrained(folder)
    return Target(folder, model)


def tiny_config(target: Target, folder: Path) -> TrainingConfig:
    """Folders below folder; a draft vocabulary that leaves some of the target's tokens out."""
    return TrainingConfig(
        target=target.folder,
        target_name="tiny",
        target_revision="r1",
        spool=folder / "spool",
        drafts=folder / "drafts",
        state=folder / "state",
        reservoir_size=2**20,
        device="cpu",
        threads=1,
        dtype="float32",
        draft_vocab_size=280,
        ttt_length=3,
        learning_rate=1e-2,
        batch_tokens=128,
        max_sample_tokens=128,
        cycle_seconds=3.0,
        replay_share=0.25,
        gate_samples=16,
        gate_margin=0.02,
        gate_confidence=0.9,
        gate_floor=0.5,
        draft_steps=3,
        seed=0,
    )


def fill_spool(config: TrainingConfig, samples: list[Sample], held_out_share: float = 0.3) -> None:
    """Write the samples as the engine would."""
    writer = SpoolWriter.open(
        config.spool,
        RowLayout(hidden_size=HIDDEN, target=config.target_name),
        4 * 2**20,
        run="run",
        max_sample_tokens=config.max_sample_tokens,
        held_out_share=held_out_share,
    )
    for sample in samples:
        rid = str(sample.info.id)
        writer.put_rows(rid, 0, sample.aux, sample.final)
        writer.finish(
            rid,
            sample.tokens.tolist(),
            sample.info.prompt_tokens,
            draft_version=0,
            verify_steps=sample.info.verify_steps,
            accepted_tokens=0,
            domain=sample.info.domain,
        )
    writer.close()
