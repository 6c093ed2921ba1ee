"""Samples for the training benchmark, of an export or made up, as files that SpecForge reads as they are."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open

from tide_cli.errors import UsageError
from tide_cli.spool.importing import read_export
from tide_cli.spool.samples import Sample, SampleInfo

_PROMPTS, _ANSWERS = (24, 320), (48, 128)  # tokens, from … to, of made-up samples


def exported(folder: Path, hidden_size: int) -> tuple[list[Path], Path | None]:
    """(the files of an export's training samples, the folder of its held-out ones), the latter None where it has none.

    export: made by `tide spool export`; which samples are held out was settled by the spool, by a hash of the id.
    Raises TideError or UsageError.
    """
    export = read_export(folder)
    if export.hidden_size != hidden_size:
        raise UsageError(
            f"{folder} is of another target", why=f"its hidden size is {export.hidden_size}, not {hidden_size}"
        )
    files = sorted((folder / "train").glob("*/*.ckpt"))
    if not files:
        raise UsageError(f"{folder} has no training samples")
    held_out = folder / "held_out"
    return files, held_out if any(held_out.glob("*/*.ckpt")) else None


def make_samples(folder: Path, count: int, hidden_size: int, tokens: Sequence[int], seed: int = 0) -> list[Path]:
    """`count` files in `folder` with random states, and with tokens drawn from `tokens`, frequent ones more often."""
    folder.mkdir(parents=True)
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    ids = torch.tensor(tokens)
    files = []
    for number in range(count):
        prompt, answer = chance.randint(*_PROMPTS), chance.randint(*_ANSWERS)
        length = prompt + answer
        drawn = (torch.rand(length, generator=generator) ** 3 * len(ids)).long()
        sample = {
            "input_ids": ids[drawn],
            "loss_mask": (torch.arange(length) >= prompt).long(),
            "aux_hidden_state": torch.randn(1, length, 3 * hidden_size, generator=generator).bfloat16(),
            "hidden_state": torch.randn(1, length, hidden_size, generator=generator).bfloat16(),
        }
        files.append(folder / f"{number:06d}.ckpt")
        torch.save(sample, files[-1])
    return files


def lengths(files: Sequence[Path]) -> list[int]:
    """Tokens of each."""
    return [len(torch.load(file, weights_only=True)["input_ids"]) for file in files]


def read(file: Path, number: int) -> Sample:
    """One file as the trainer takes it."""
    tensors = torch.load(file, weights_only=True)
    tokens, mask = tensors["input_ids"], tensors["loss_mask"].bool()
    count = len(tokens)
    info = SampleInfo(number, "bench", 0, time.time(), count, int((~mask).sum()), 0, 0, 0, "train", 0, ())
    return Sample(info, tokens, mask, tensors["aux_hidden_state"][0], tensors["hidden_state"].reshape(count, -1))


def index_of(target: Path, view: Path) -> tuple[Path, str]:
    """(folder, name of the head's tensor): the target with a list of its tensors; without one SpecForge finds none."""
    if not view.exists():
        view.mkdir()
        for file in target.iterdir():
            (view / file.name).symlink_to(file)
    index = view / "model.safetensors.index.json"
    if not index.exists():
        with safe_open(target / "model.safetensors", framework="pt") as file:
            index.write_text(json.dumps({"weight_map": dict.fromkeys(file.keys(), "model.safetensors")}))
    names = json.loads(index.read_text())["weight_map"]
    return view, "lm_head.weight" if "lm_head.weight" in names else "model.embed_tokens.weight"


def vocabulary_map(draft: Path, file: Path) -> Path:
    """The draft's vocabulary map as SpecForge reads one: left to itself it would make another from the samples."""
    with safe_open(draft / "model.safetensors", framework="pt") as tensors:
        torch.save({name: tensors.get_tensor(name) for name in ("d2t", "t2d")}, file)
    return file
