"""The ways of dividing a machine that are compared: the planner's own, and others of its making under other wishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tide_cli.errors import UsageError
from tide_cli.hardware.cores import format_cores
from tide_cli.hardware.inventory import Gpu, Inventory
from tide_cli.hardware.plan import Partition, Plan
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.wishes import Wishes
from tide_cli.simulation.gpu_figures import GpuFigures, gpu_figures
from tide_cli.simulation.machine import Machine, Roofline, joined_fast
from tide_cli.simulation.trainer import CpuTrainer, GpuTrainer, Trainer
from tide_cli.targets.shape import DraftShape, TargetShape

SHARE = 0.5  # of a GPU's time for a trainer that shares it, while it trains: two busy processes take turns


@dataclass(frozen=True)
class Division:
    """What the splits have in common. figures: of every GPU, in the place of the data sheets'; machine: measured, in
    the place of the roofline; share: as SHARE; profiles: the folder where measured machines are kept."""

    inventory: Inventory
    target: TargetShape
    wishes: Wishes
    draft: DraftShape | None = None
    name: str = "the target"
    others: Mapping[str, TargetShape] | None = None
    figures: GpuFigures | None = None
    machine: Machine | None = None
    share: float = SHARE
    profiles: Path | None = None


@dataclass(frozen=True)
class Split:
    """trainer: None where nothing is trained; share: part of a serving GPU that it takes while it trains. planned: the
    planner's own choice; options: of `tide up` that bring the planner to any other."""

    plan: Plan
    machine: Machine
    trainer: Trainer | None
    share: float
    planned: bool
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """'own', 'shared', 'cpu' or 'off', as the plan has it."""
        return self.plan.trainer

    @property
    def share_left(self) -> float:
        """Part of the trainer's device that it has while it trains."""
        return self.share or 1.0

    @property
    def serves(self) -> str:
        gpus = self.plan.serve.gpus
        return f"GPU {format_cores(gpus)}" if gpus else f"core {format_cores(self.plan.serve.cores)}"

    @property
    def trains(self) -> str | None:
        train = self.plan.train
        if train is None:
            return None
        return f"GPU {format_cores(train.gpus)}" if train.gpus else f"core {format_cores(train.cores)}"


def splits(division: Division, worth: Callable[[Machine], float]) -> list[Split]:
    """The planner's own split first, then the best of each kind of trainer, and of none.

    worth: what an engine on this machine is expected to serve, to choose among splits of a kind. Raises UsageError as
    the planner does, and for GPUs whose speed is not known.
    """
    planned = _split(division, _plan(division, division.wishes), planned=True)
    best: dict[str, Split] = {}
    asked: dict[str, Wishes] = {}
    for wishes in _others(division, planned):
        try:
            plan = _plan(division, wishes)
        except UsageError:
            continue
        found = _split(division, plan, planned=False)
        known = best.get(found.kind)
        if known is None or worth(found.machine) > worth(known.machine):
            best[found.kind], asked[found.kind] = found, wishes
    others = [
        replace(one, options=_options(division, asked[kind], one.plan))
        for kind, one in best.items()
        if kind != planned.kind or worth(one.machine) > worth(planned.machine)
    ]
    return [planned, *sorted(others, key=lambda one: one.kind != planned.kind)]


def _options(division: Division, wishes: Wishes, plan: Plan) -> tuple[str, ...]:
    """What asks for these wishes on top of the division's own, less what the plan does not need."""
    own, found = division.wishes, []
    for name in ("training", "tp", "serve_gpus", "train_gpus"):
        value = getattr(wishes, name)
        if value is None or value == getattr(own, name):
            continue
        without = replace(wishes, **{name: getattr(own, name)})
        if _comes_to(division, without, plan):
            wishes = without
        else:
            found += ["--no-training"] if name == "training" else [f"--{name.replace('_', '-')}", str(value)]
    return tuple(found)


def _comes_to(division: Division, wishes: Wishes, plan: Plan) -> bool:
    try:
        return _devices(_plan(division, wishes)) == _devices(plan)
    except UsageError:
        return False


def _devices(plan: Plan) -> tuple[Partition, Partition | None]:
    return plan.serve, plan.train


def _others(division: Division, planned: Split) -> Iterator[Wishes]:
    """The planner's wishes with another number of GPUs, another place for the trainer, or without one."""
    wishes = division.wishes
    fixed = wishes.tp is not None or wishes.serve_gpus is not None
    yield replace(wishes, training=False, train_gpus=None)
    gpus = planned.plan.serve.gpus
    if not gpus or not wishes.training:
        return
    for tp in [None] if fixed else range(1, len(division.inventory.gpus) + 1):
        yield replace(wishes, training=False, train_gpus=None, tp=tp or wishes.tp)
        if wishes.train_gpus is not None:
            continue
        yield replace(wishes, tp=tp or wishes.tp)
        yield replace(wishes, tp=tp or wishes.tp, train_gpus="cpu")
        try:
            serving = _plan(division, replace(wishes, training=False, tp=tp or wishes.tp)).serve.gpus
        except UsageError:
            continue
        yield replace(wishes, serve_gpus=format_cores(serving), tp=None, train_gpus=str(serving[-1]))


def _plan(division: Division, wishes: Wishes) -> Plan:
    return make_plan(
        division.inventory,
        division.target,
        wishes,
        target=division.name,
        draft=division.draft,
        others=division.others,
    )


def _split(division: Division, plan: Plan, *, planned: bool) -> Split:
    target, wishes = division.target, division.wishes
    draft = (division.draft or target.usual_draft) if wishes.speculation else None
    by_index = {gpu.index: gpu for gpu in division.inventory.gpus}
    serving = [by_index[index] for index in plan.serve.gpus]
    machine = division.machine or _roofline(division, serving, draft)
    trainer: Trainer | None = None
    if plan.train is not None and draft is not None:
        if plan.train.gpus:
            training = [by_index[index] for index in plan.train.gpus]
            slowest = min((_figures(division, gpu) for gpu in training), key=lambda figures: figures.flops)
            fast = joined_fast(training, division.inventory)
            trainer = GpuTrainer(target, draft, wishes.draft_steps, slowest, len(training), fast)
        else:
            trainer = CpuTrainer(target, draft, wishes.draft_steps, len(plan.train.cores))
    return Split(plan, machine, trainer, division.share if plan.trainer == "shared" else 0.0, planned)


def _roofline(division: Division, serving: list[Gpu], draft: DraftShape | None) -> Roofline:
    if not serving:
        raise UsageError(
            "how fast a CPU serves cannot be told from its name",
            remedy=f"`tide profile` measures it and keeps the file in {division.profiles}; give that with --profile",
        )
    return Roofline(
        division.target,
        draft,
        _figures(division, serving[0]),
        len(serving),
        joined_fast(serving, division.inventory),
        division.wishes.serving_bytes,
    )


def _figures(division: Division, gpu: Gpu) -> GpuFigures:
    return division.figures or gpu_figures(gpu)
