"""Which devices serve and which train, and how much memory each part gets: a pure function of its arguments.

Serving comes first: a layout is taken when the engine has the wanted KV cache in it (wished context times requests).
The most wanted layout then gives all that is left to the KV cache. A less wanted one stops at the wanted size: with a
little more memory the better layout would be taken, and the cache must not shrink by that. Where no layout reaches the
wanted size, the one with the largest cache is taken. So more memory never makes a plan worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tide_cli.errors import UsageError
from tide_cli.hardware.core_division import cores_for
from tide_cli.hardware.gpus import named_gpus, usable
from tide_cli.hardware.inventory import Gpu, Inventory
from tide_cli.hardware.layouts import Layout, layouts
from tide_cli.hardware.memory import (
    EARLY_PARTS,
    GIB,
    PREFILL_STEPS,
    STATIC_PARTS,
    Part,
    cpu_engine_parts,
    engine_parts,
    kv_token_bytes,
    reservoir_size,
    serving_parts,
    spool_size,
    total,
    trainer_parts,
    whole_pages,
)
from tide_cli.hardware.notes import fewer_note, float32_note, gpu_notes, trainer_note
from tide_cli.hardware.plan import DeviceMemory, Partition, Plan
from tide_cli.hardware.refusals import DoesNotFit, refuse_gpu_wishes, too_small
from tide_cli.hardware.swap_pause import swap_pause
from tide_cli.hardware.training_gpus import training_gpus
from tide_cli.hardware.wishes import Wishes
from tide_cli.spool.layout import row_bytes
from tide_cli.targets.shape import DraftShape, TargetShape

# KV cache on a CPU: enough for eight requests of 2,048 tokens, without asking how much memory is free.
CPU_TOTAL_TOKENS = 16384


@dataclass(frozen=True)
class _Fit:
    """A layout with what fits into it. tokens: of KV cache, for each of PREFILL_STEPS; below the least: refused.

    trainers: the GPUs that train.
    """

    layout: Layout
    trainers: tuple[Gpu, ...]
    tokens: tuple[int, ...]
    wanted: int

    @property
    def most(self) -> int:
        return self.tokens[-1]

    def step(self) -> int:
        """Place in PREFILL_STEPS: the fastest one that leaves the wanted KV cache."""
        return next((place for place, tokens in enumerate(self.tokens) if tokens >= self.wanted), len(self.tokens) - 1)


def make_plan(
    inventory: Inventory,
    shape: TargetShape | None,
    wishes: Wishes,
    *,
    target: str = "the target",
    draft: DraftShape | None = None,
    others: Mapping[str, TargetShape] | None = None,
) -> Plan:
    """Divide the machine. shape: None where it is not known yet: devices are then divided without counting memory.

    draft: the draft's shape where it is not the target's usual one. others: targets to suggest where this one does not
    fit. Raises UsageError for wishes that cannot be fulfilled and for what does not fit, saying what is missing.
    """
    allowed = named_gpus("--gpus", wishes.gpus, inventory.gpus)
    pool = inventory.gpus if allowed is None else allowed
    served = None if shape is None or not wishes.speculation else draft or shape.usual_draft
    if not wishes.speculation:
        wishes = replace(wishes, training=False)
    try:
        if not pool:
            refuse_gpu_wishes(wishes)
            plan = _on_cpu(inventory, shape, served, wishes, target)
        elif shape is None:
            plan = _by_count(inventory, pool, layouts(inventory, pool, shape, served, wishes)[0], wishes, target)
        else:
            possible = layouts(inventory, pool, shape, served, wishes)
            fit = _choose(inventory, possible, shape, served, wishes, target)
            if served and fit.layout.trainer == "own" and wishes.train_gpus is None:
                idle = [gpu for gpu in pool if gpu not in (*fit.layout.serve, *fit.trainers)]
                needed = total(trainer_parts(shape, served, wishes, on_gpu=True, gpus=2))
                serves = partial(_can_serve, inventory, shape, served, wishes)
                fit = replace(fit, trainers=training_gpus(fit.trainers[0], idle, needed, serves))
            plan = _on_gpus(inventory, pool, possible, fit, shape, served, wishes, target)
    except DoesNotFit as error:
        if shape and (smaller := _largest_that_fits(inventory, shape, wishes, others or {})):
            error.remedy = f"--target {smaller} would fit"
        raise
    if wishes.train_gpus and plan.trainer == "own":
        with suppress(UsageError):
            free = make_plan(inventory, shape, replace(wishes, train_gpus=None), draft=draft)
            fewer = fewer_note(len(plan.serve.gpus), len(free.serve.gpus), len(pool), wishes)
            plan = replace(plan, notes=(*fewer, *plan.notes))
    return _with_disk(plan, inventory, shape, wishes)


def _choose(
    inventory: Inventory,
    possible: Sequence[Layout],
    shape: TargetShape,
    draft: DraftShape | None,
    wishes: Wishes,
    target: str,
) -> _Fit:
    least = wishes.least_tokens(shape.context_length)
    found = [_fit(inventory, layout, shape, draft, wishes) for layout in possible]
    good = [fit for fit in found if fit and fit.most >= least]
    if not good:
        raise too_small(inventory, possible, shape, draft, wishes, target)
    enough = [fit for fit in good if fit.most >= fit.wanted]
    return enough[0] if enough else max(good, key=lambda fit: fit.most)  # the first of equals


def _fit(
    inventory: Inventory, layout: Layout, shape: TargetShape, draft: DraftShape | None, wishes: Wishes
) -> _Fit | None:
    """None where the trainer does not fit."""
    trainers: tuple[Gpu, ...] = ()
    needed = 0 if layout.trainer == "off" else total(layout.training_parts(shape, draft, wishes))
    if layout.trainer == "cpu" and needed > inventory.memory_free:
        return None
    if layout.candidates:
        fitting = (gpus for gpus in layout.candidates if min(map(usable, gpus)) >= needed)
        trainers = next(fitting, ())
        if not trainers:
            return None
    smallest = min(usable(gpu) - (needed if gpu in trainers else 0) for gpu in layout.serve)
    tp = len(layout.serve)
    token = kv_token_bytes(shape, draft, tp)
    tokens = []
    for step in PREFILL_STEPS:
        left = smallest - total(engine_parts(shape, draft, wishes, tp=tp, prefill_tokens=step))
        tokens.append(whole_pages(max(0, left) // token))
    return _Fit(layout, trainers, tuple(tokens), wishes.wanted_tokens(shape.context_length))


def _can_serve(
    inventory: Inventory, shape: TargetShape, draft: DraftShape, wishes: Wishes, gpus: Sequence[Gpu]
) -> bool:
    """Whether a second appliance, without a trainer, has room on these GPUs."""
    second = replace(wishes, training=False, gpus=None, serve_gpus=None, tp=None, total_tokens=None)
    try:
        make_plan(replace(inventory, gpus=tuple(gpus)), shape, second, draft=draft)
    except UsageError:
        return False
    return True


def _on_gpus(
    inventory: Inventory,
    pool: Sequence[Gpu],
    possible: Sequence[Layout],
    fit: _Fit,
    shape: TargetShape,
    draft: DraftShape | None,
    wishes: Wishes,
    target: str,
) -> Plan:
    layout, tp, place = fit.layout, len(fit.layout.serve), fit.step()
    step = PREFILL_STEPS[place]
    tokens = fit.tokens[place]
    if (wishes.total_tokens or layout is not possible[0] or place > 0) and tokens > fit.wanted:
        tokens = fit.wanted
    engine = serving_parts(shape, draft, wishes, tp=tp, prefill_tokens=step, tokens=tokens)
    training = layout.training_parts(shape, draft, wishes)
    if draft and len(fit.trainers) > 1:
        training = trainer_parts(shape, draft, wishes, on_gpu=True, gpus=len(fit.trainers))
    memory = []
    for gpu in pool:
        parts = engine if gpu in layout.serve else ()
        if gpu in fit.trainers:
            parts += training
        memory.append(DeviceMemory(gpu.index, gpu.name, gpu.memory, gpu.memory_used, parts))
    if layout.trainer == "cpu":
        memory.append(_main_memory(inventory, training))
    static = sum(part.size for part in engine if part.name in STATIC_PARTS)
    early = sum(part.size for part in engine if part.name in EARLY_PARTS)
    # A fraction of what is free when the engine starts; after a restart the trainer is there already.
    smallest = min(gpu.memory_free - (total(training) if gpu in fit.trainers else 0) for gpu in layout.serve)
    fewer = next((len(one.serve) for one in possible if one.trainer == "own" and len(one.serve) < tp), 0)
    notes = [
        *gpu_notes(inventory, pool, layout.serve, fit.trainers, wishes, target),
        *trainer_note(layout.trainer, layout.serve, fit.trainers, training, wishes, given_up=fewer),
    ]
    spare = min(usable(gpu) - device.planned for gpu, device in zip(pool, memory, strict=False) if gpu in layout.serve)
    if fit.most > tokens and not wishes.total_tokens and spare >= GIB:
        notes.append(
            f"{spare / GIB:.1f} GiB of each serving GPU stay free; max_total_tokens = {fit.most} would use them for the"
            " KV cache"
        )
    if tokens < (wishes.context_length or shape.context_length):
        notes.append(f"the KV cache holds {tokens:,} tokens: no single request can be longer")
    plan = _divided(inventory, layout.serve, fit.trainers, layout.trainer != "off", notes, wishes)
    return replace(
        plan,
        memory=tuple(memory),
        max_total_tokens=tokens,
        mem_fraction_static=min(0.99, _round_up(static / (smallest - early))),
        prefill_tokens=step,
        swap_pause=swap_pause(draft, wishes, layout.serve) if draft else None,
    )


def _on_cpu(
    inventory: Inventory, shape: TargetShape | None, draft: DraftShape | None, wishes: Wishes, target: str
) -> Plan:
    tokens = wishes.total_tokens or CPU_TOTAL_TOKENS
    plan = _divided(inventory, (), (), wishes.training, [], wishes)
    if shape is None:
        return replace(plan, max_total_tokens=tokens)
    engine = cpu_engine_parts(shape, draft, plan.dtype, tokens)
    training = trainer_parts(shape, draft, wishes, on_gpu=False) if draft and wishes.training else ()
    needed = (*engine, *training) if wishes.train_cores else engine
    if total(needed) > inventory.memory_free:
        raise DoesNotFit(target, "in main memory", needed, inventory.memory_free, float32_note(shape, plan.dtype))
    if total(engine) + total(training) > inventory.memory_free:
        note = f"adaptation is off: the trainer needs {total(training) / GIB:.1f} GiB of main memory beside the engine"
        plan, training = _divided(inventory, (), (), False, [note], wishes), ()
    return replace(plan, memory=(_main_memory(inventory, (*engine, *training)),), max_total_tokens=tokens)


def _by_count(inventory: Inventory, pool: Sequence[Gpu], layout: Layout, wishes: Wishes, target: str) -> Plan:
    """Without a shape: the most wanted layout, and SGLang's own figures."""
    trainers = layout.candidates[0] if layout.candidates else ()
    notes = [
        "the target's shape is not known here: its memory is not planned",
        *gpu_notes(inventory, pool, layout.serve, trainers, wishes, target),
        *trainer_note(layout.trainer, layout.serve, trainers, (), wishes),
    ]
    plan = _divided(inventory, layout.serve, trainers, layout.trainer != "off", notes, wishes)
    return replace(plan, max_total_tokens=wishes.total_tokens)


def _divided(
    inventory: Inventory,
    serve: Sequence[Gpu],
    trainers: Sequence[Gpu],
    training: bool,
    notes: Sequence[str],
    wishes: Wishes,
) -> Plan:
    """The plan without figures: GPUs as given, cores divided; the engine's cores on the nodes of its GPUs."""
    serve_cores, train_cores, core_notes = cores_for(inventory, serve, wishes, training=training)
    return Plan(
        serve=_partition(serve_cores, serve),
        train=_partition(train_cores, trainers) if training else None,
        dtype=wishes.serving_dtype(native=bool(serve) or inventory.bfloat16),
        notes=(*core_notes, *notes, *inventory.limits),
    )


def _with_disk(plan: Plan, inventory: Inventory, shape: TargetShape | None, wishes: Wishes) -> Plan:
    """The plan with the sizes of what lies on the disk."""
    ring, kept = wishes.spool_size, wishes.reservoir_size
    if ring is None and inventory.disk_free is not None:
        ring = spool_size(inventory.disk_free)
    if ring is not None and shape is not None:
        row = row_bytes(shape.hidden_size)
        kept = reservoir_size(kept, ring=ring, row=row, sample_tokens=wishes.sample_tokens)
    return replace(plan, spool_size=ring, reservoir_size=kept if plan.train else None)


def _partition(cores: tuple[int, ...], gpus: Sequence[Gpu]) -> Partition:
    visible = tuple(gpu.visible_as for gpu in gpus) if any(gpu.mig for gpu in gpus) else ()
    return Partition(cores, tuple(gpu.index for gpu in gpus), visible)


def _main_memory(inventory: Inventory, parts: tuple[Part, ...]) -> DeviceMemory:
    used = inventory.memory - inventory.memory_free
    return DeviceMemory(None, "main memory", inventory.memory, used, parts)


def _largest_that_fits(
    inventory: Inventory, shape: TargetShape, wishes: Wishes, others: Mapping[str, TargetShape]
) -> str | None:
    smaller = [(other.weight_bytes, name) for name, other in others.items() if other.weight_bytes < shape.weight_bytes]
    for _, name in sorted(smaller, reverse=True):
        try:
            make_plan(inventory, others[name], wishes)
        except UsageError:
            continue
        return name
    return None


def _round_up(fraction: float) -> float:
    """To three decimals, as SGLang does with its own."""
    return -(-int(fraction * 1_000_000) // 1000) / 1000
