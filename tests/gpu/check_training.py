"""Optimiser steps of a full-size draft from a synthetic spool, and the gate's walk: memory against the plan, and speed.

Everything is the product's: the target's embedding and head are read from its checkpoint
(tide_cli/training/target_weights.py), samples go through the spool and `collate`, the step is DraftTrainer's. The draft
is a module of SpecForge's, and so are the optimiser and the step: without it the step is left out, and what remains is
the data's way to the device and the plan. The spool needs sqlite-utils; without it the samples are made in memory.

What a GPU that serves too would lose is what torch has reserved, not what it has in use, and the CUDA context. As there
the trainer may reserve what the plan says and no more; where that does not do, the part runs again without the bound,
and says how much it takes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from gpu_device import Device
from gpu_draft import published_config, random_tensors, target_config
from gpu_sink import spool_writer
from safetensors.torch import save_file
from torch import Tensor

from tide_cli.drafts.tensors import vocabulary_ids
from tide_cli.hardware.memory import _COLLECTIVES as COLLECTIVES
from tide_cli.hardware.memory import _CONTEXT as CONTEXT
from tide_cli.hardware.memory import total, trainer_parts
from tide_cli.hardware.wishes import Wishes
from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.targets.shape import TargetShape
from tide_cli.training.batches import collate
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import load_draft, write_draft
from tide_cli.training.target_weights import TargetWeights

Result = TypeVar("Result")


@dataclass(frozen=True)
class Amount:
    """batches: (samples, tokens of each), none with more tokens than the plan's `batch_tokens`. steps: timed ones."""

    batches: tuple[tuple[int, int], ...] = ((4, 512), (1, 2048))
    batch_tokens: int = 2048
    depths: int = 3
    steps: int = 8
    ring: int = 2**30


def run(device: Device, target: TargetShape, amount: Amount, folder: Path) -> tuple[dict[str, object], list[str]]:
    """(figures, faults)."""
    dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
    tensors = random_tensors(target, 0, device.place, dtype)
    checkpoint, draft = folder / "target", folder / "draft"
    _write_target(checkpoint, target, device)
    draft.mkdir()
    write_draft(draft, tensors, published_config(target), dtype)
    ids = vocabulary_ids(tensors["d2t"])
    spooled, batches = _batches(folder / "training-spool", target, amount, ids)
    wishes = Wishes(batch_tokens=amount.batch_tokens, draft_steps=amount.depths, draft_bytes=dtype.itemsize)
    plan = trainer_parts(target, target.usual_draft, wishes, on_gpu=device.kind == "cuda")
    planned = total(part for part in plan if part.name not in ("driver and libraries", "process"))
    figures: dict[str, object] = {
        "parameters": target.usual_draft.parameters,
        "depths": amount.depths,
        "samples_from": "the product's spool" if spooled else "memory: sqlite-utils is not installed",
        "planned_bytes": planned,
        "plan": {part.name: part.size for part in plan},
    }
    try:
        from tide_cli.training.trainer import DraftTrainer
    except ModuleNotFoundError as error:
        figures["left_out"] = f"the step: {error.name.partition('.')[0]} is not installed"
        return figures | _data_only(device, checkpoint, batches, amount), []

    memory = _Memory(device, planned, figures)
    begun = time.perf_counter()
    config = _config(device, folder, checkpoint, amount)
    trainer = memory.within("load", lambda: DraftTrainer(config, draft))
    device.synchronize()
    figures["load_s"] = round(time.perf_counter() - begun, 2)
    faults, figures["batches"] = [], []
    before = {name: master.cpu().clone() for name, master in list(trainer.masters().items())[:2]}
    for samples in batches:
        found = memory.within("steps", lambda samples=samples: _steps(device, trainer, samples, amount.steps))
        figures["batches"].append(found)
        if not math.isfinite(found["loss"]):
            faults.append("the loss is not a number")
    if any(torch.equal(trainer.masters()[name].cpu(), tensor) for name, tensor in before.items()):
        faults.append("the weights have not changed")
    longest = max(batches, key=lambda samples: samples[0].info.tokens)[0]
    figures["walk_ms"] = memory.within("walk", lambda: _walk_ms(device, trainer, longest, amount))
    places = [parameter.data_ptr() for parameter in trainer.draft.parameters()]
    memory.within("restart", lambda: trainer.restart_from(tensors))  # while the moments of before are there
    faults += memory.faults()
    if places != [parameter.data_ptr() for parameter in trainer.draft.parameters()]:
        faults.append("going back to a draft moved its tensors")
    for part in (_walk_in_chunks, _in_turns, _exchange):
        found, wrong = part(device, trainer, longest, batches)
        figures |= found
        faults += wrong
    return figures, faults


def _against_the_plan(what: str, peak: int, planned: int, figures: dict[str, object]) -> list[str]:
    """Notes the peak of a part, and says where it is a fault."""
    figures |= {f"{what}_reserved_bytes": peak, f"{what}_of_the_plan": round(peak / planned, 3)}
    return [f"the {what} took {peak / planned - 1:.1%} more than planned"] if peak > planned else []


def _walk_in_chunks(device: Device, trainer, longest: Sample, batches: list[list[Sample]]) -> tuple[dict, list[str]]:
    """What the draft proposes from each row: with all rows looked at together, and in chunks, as the gate does."""
    from tide_cli.training.walk import accepted_drafts

    walker, compute, found = trainer.walker, trainer.walker.compute_logits, []

    def watched(hidden: Tensor) -> Tensor:
        logits = compute(hidden)
        found.append(logits.argmax(-1))
        return logits

    def proposals(at_once: int | None) -> Tensor:
        found.clear()
        accepted_drafts(walker, longest.tokens, longest.aux, 0, 1, at_once)
        return torch.cat(found)

    count = longest.info.tokens
    walker.compute_logits = watched
    try:
        wanted = proposals(count)
        agree = {name: _share_equal(wanted, proposals(rows)) for name, rows in (("gate", None), ("third", count // 3))}
    finally:
        del walker.compute_logits
    # two nearly equal logits may change places, in bfloat16
    faults = [
        f"a walk in chunks ({name}) proposes otherwise: {of:.1%} agree" for name, of in agree.items() if of < 0.98
    ]
    return {"walk_in_chunks_agrees": agree}, faults


def _share_equal(wanted: Tensor, found: Tensor) -> float:
    return round(float((wanted == found).float().mean()), 4) if wanted.shape == found.shape else 0.0


def _in_turns(device: Device, trainer, longest: Sample, batches: list[list[Sample]]) -> tuple[dict, list[str]]:
    """The gradient of shares that are weighted and added up, as several processes do, against that of one batch."""
    from tide_cli.training.shares import step_in_turns

    samples = max(batches, key=len)
    wanted_loss = trainer.gradient(samples).loss
    wanted = [gradient.float() for gradient in trainer.gradients()]
    found: list[Tensor] = []
    trainer.apply_gradients = lambda: found.extend(gradient.float() for gradient in trainer.gradients())
    try:
        loss = step_in_turns(trainer, [samples[:1], samples[1:], []]).loss
    finally:
        del trainer.apply_gradients
    trainer.forget_gradients()
    apart = sum(float((a - b).square().sum()) for a, b in zip(found, wanted, strict=True))
    relative = math.sqrt(apart / sum(float(b.square().sum()) for b in wanted))
    of_loss = abs(loss / wanted_loss - 1)
    faults = [f"a step in turns: gradient {relative:.1%}, loss {of_loss:.1%} from those of one batch"]
    figures = {"in_turns_gradient_apart": round(relative, 5), "in_turns_loss_apart": round(of_loss, 6)}
    return figures, faults if relative > 0.03 or of_loss > 0.003 else []


def _exchange(device: Device, trainer, longest: Sample, batches: list[list[Sample]]) -> tuple[dict, list[str]]:
    """A group of this process alone: NCCL starts, its collectives say when they are done, and its memory."""
    from tide_cli.training.exchange import join, leave, send_tensors, sum_gradients

    trainer.gradient(batches[0])
    wanted = [gradient.clone() for gradient in trainer.gradients()]
    before = torch.cuda.mem_get_info()[0] if device.kind == "cuda" else 0
    begun = time.perf_counter()
    join(trainer.config, 0, trainer.config.state.parent / "helpers")
    joined = time.perf_counter() - begun
    try:
        for work in [*send_tensors(trainer.masters().values()), *sum_gradients(trainer, 0.5)]:
            while not work.is_completed():
                if time.perf_counter() - begun > 60:
                    return {}, ["a collective of one process does not end within a minute"]
            work.wait()
        device.synchronize()
        taken = before - torch.cuda.mem_get_info()[0] if device.kind == "cuda" else 0
    finally:
        leave()
    same = all(torch.equal(a, b * 0.5) for a, b in zip(trainer.gradients(), wanted, strict=True))
    trainer.forget_gradients()
    figures = {"join_s": round(joined, 2), "collectives_bytes": taken}
    faults = [] if same else ["the sum of one process's gradients is not its own"]
    if taken > COLLECTIVES:
        faults.append(f"collectives took {taken} bytes, more than the {COLLECTIVES} planned")
    return figures, faults


def _walk_ms(device: Device, trainer, sample: Sample, amount: Amount) -> float:
    """Of the gate over one sample, after one that is not timed. As in judge: with copies of the masters beside it."""
    from tide_cli.training.walk import walk

    tensors = trainer.tensors()
    load_draft(trainer.walker, tensors)
    walk(trainer.walker, sample, amount.depths)
    device.synchronize()
    begun = time.perf_counter()
    walk(trainer.walker, sample, amount.depths)
    device.synchronize()
    return round((time.perf_counter() - begun) * 1e3, 1)


class _Memory:
    """What torch reserves on the device beyond what was there before, and may: `planned` bytes. None on a processor."""

    def __init__(self, device: Device, planned: int, figures: dict[str, object]) -> None:
        self._on_gpu, self._planned, self._figures = device.kind == "cuda", planned, figures
        self._faults: list[str] = []
        if self._on_gpu:
            torch.cuda.empty_cache()
            self._before = torch.cuda.memory_reserved()
            self._bound((self._before + planned) / torch.cuda.mem_get_info()[1])

    def _bound(self, part: float) -> None:
        torch.cuda.set_per_process_memory_fraction(min(1.0, part))

    def within(self, what: str, work: Callable[[], Result]) -> Result:
        """Do a part of the work; how much it took is noted."""
        if not self._on_gpu:
            return work()
        torch.cuda.reset_peak_memory_stats()
        try:
            result = work()
        except torch.OutOfMemoryError as error:
            self._faults.append(f"the {what} does not fit into what is planned: {str(error).splitlines()[0]}")
            self._bound(1.0)
            result = work()
        peak = torch.cuda.max_memory_reserved() - self._before
        self._faults += _against_the_plan(what, peak, self._planned, self._figures)
        self._figures[f"{what}_used_bytes"] = torch.cuda.max_memory_allocated()
        return result

    def faults(self) -> list[str]:
        """Of all parts; the bound is lifted. The context is what torch does not know of, if nobody else is there."""
        if not self._on_gpu:
            return []
        self._bound(1.0)
        free, whole = torch.cuda.mem_get_info()
        context = whole - free - torch.cuda.memory_reserved()
        self._figures["context_bytes"] = context
        if context > CONTEXT:
            self._faults.append(f"{context} bytes are taken beside torch's, more than the {CONTEXT} planned")
        return list(dict.fromkeys(self._faults))


def _steps(device: Device, trainer, samples: list[Sample], count: int) -> dict[str, float]:
    """The first step compiles; the second is not timed either."""
    begun = time.perf_counter()
    trainer.step(samples)
    device.synchronize()
    first = time.perf_counter() - begun
    trainer.step(samples)
    device.synchronize()
    tokens, begun = 0, time.perf_counter()
    for _ in range(count):
        step = trainer.step(samples)
        tokens += step.tokens
    device.synchronize()
    took = time.perf_counter() - begun
    return {
        "samples": len(samples),
        "tokens": step.tokens,
        "first_step_s": round(first, 2),
        "step_ms": round(took / count * 1e3, 1),
        "tokens_s": round(tokens / took, 1),
        "loss": round(step.loss, 4),
    }


def _data_only(device: Device, checkpoint: Path, batches: list[list[Sample]], amount: Amount) -> dict[str, object]:
    """Embedding and head of the target, and a batch, on the device."""
    begun = time.perf_counter()
    weights = TargetWeights.read(checkpoint, torch.bfloat16)
    loaded = [tensor.to(device.place) for tensor in (weights.embedding, weights.head)]
    device.synchronize()
    found: dict[str, object] = {
        "load_s": round(time.perf_counter() - begun, 2),
        "loaded_bytes": sum(tensor.nbytes for tensor in loaded),
    }
    begun = time.perf_counter()
    for samples in batches:
        batch = collate(samples, amount.batch_tokens, torch.bfloat16)
        for tensor in batch.values():
            tensor.to(device.place, non_blocking=True)
    device.synchronize()
    return found | {"collate_ms": round((time.perf_counter() - begun) / len(batches) * 1e3, 1)}


def _write_target(folder: Path, target: TargetShape, device: Device) -> None:
    """The tensors that the trainer reads, as a checkpoint of the target would hold them."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(target_config(target)))

    def random() -> Tensor:
        size = (target.vocab_size, target.hidden_size)
        return (torch.randn(size, device=device.place, dtype=torch.bfloat16) * 0.02).cpu()

    tensors = {"model.embed_tokens.weight": random(), "lm_head.weight": random()}
    tensors["model.norm.weight"] = torch.ones(target.hidden_size, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors")


def _batches(folder: Path, target: TargetShape, amount: Amount, ids: Tensor) -> tuple[bool, list[list[Sample]]]:
    """(through the spool, samples of each batch). An eighth is prompt; the draft can propose every token."""
    generator = torch.Generator().manual_seed(0)
    writer = spool_writer(folder, target.hidden_size, amount.ring)
    made: list[list[Sample]] = []
    number = 0
    for count, length in amount.batches:
        made.append([])
        for _ in range(count):
            number += 1
            tokens = ids[torch.randint(len(ids), (length + 1,), generator=generator)]
            states = torch.randn(length, 4 * target.hidden_size, generator=generator).bfloat16()
            aux, final = states[:, : 3 * target.hidden_size], states[:, 3 * target.hidden_size :]
            if writer is None:
                info = SampleInfo(number, "check", 0, 0.0, length, length // 8, 0, length, 0, "train", 0, ())
                made[-1].append(Sample(info, tokens[:-1], torch.arange(length) >= length // 8, aux, final))
            else:
                writer.put_rows(str(number), 0, aux, final)
                writer.finish(
                    str(number), tokens.tolist(), length // 8, draft_version=0, verify_steps=length, accepted_tokens=0
                )
    if writer is None:
        return False, made
    from tide_cli.spool.reader import SpoolReader

    reader = SpoolReader.open(folder)
    samples = [reader.read(info) for info in sorted(reader.samples(), key=lambda info: info.id)]
    reader.close()
    writer.close()
    lengths = [length for count, length in amount.batches for _ in range(count)]
    if [None if sample is None else sample.info.tokens for sample in samples] != lengths:
        raise RuntimeError("the spool does not give back what was put in")
    return True, [[samples.pop(0) for _ in range(count)] for count, _ in amount.batches]


def _config(device: Device, folder: Path, checkpoint: Path, amount: Amount) -> TrainingConfig:
    return TrainingConfig(
        target=checkpoint,
        target_name="check",
        target_revision="",
        spool=folder / "training-spool",
        drafts=folder / "drafts",
        state=folder / "state",
        reservoir_size=2**20,
        device=device.kind,
        threads=1,
        dtype="bfloat16" if device.kind == "cuda" else "float32",
        draft_vocab_size=0,
        ttt_length=amount.depths,
        learning_rate=1e-4,
        batch_tokens=amount.batch_tokens,
        max_sample_tokens=amount.batch_tokens,
        cycle_seconds=60.0,
        replay_share=0.0,
        gate_samples=2,
        gate_margin=0.0,
        gate_confidence=0.9,
        gate_floor=1.0,
        draft_steps=amount.depths,
        seed=0,
    )
