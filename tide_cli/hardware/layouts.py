"""The ways in which GPUs can be divided between engine and trainer, the most wanted first; no memory is counted.

Serving comes first here too: as many GPUs serve as are of use, and the trainer gets a GPU of its own only where one is
left over. A better draft does not make up for GPUs given away: simulated with trainers of every kind, half as many
GPUs served 15 to 35 % less in all (docs/simulation.md). Where none is left over, the trainer takes the CPU if its cores
learn fast enough, else it shares a serving GPU, which slows the engine down while it trains. Several GPUs train where
they are named, all of them; which others join the first is the planner's business, as it depends on memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tide_cli.errors import UsageError
from tide_cli.hardware.core_division import cores_for
from tide_cli.hardware.gpus import best_set, equal_groups, named_gpus, tensor_parallel_sizes, usable, useful_gpus
from tide_cli.hardware.inventory import Gpu, Inventory
from tide_cli.hardware.memory import Part, trainer_parts
from tide_cli.hardware.wishes import Wishes
from tide_cli.targets.shape import DraftShape, TargetShape

# A trainer's core for so many weights of the draft learns some 400 tokens/s, by the arithmetic of the simulation: as
# much as a shared GPU does in the tenth of its time that it may train by default.
_WEIGHTS_OF_CORE = 10_000_000


@dataclass(frozen=True)
class Layout:
    """serve: the engine's GPUs. trainer: 'own', 'shared', 'cpu' or 'off', as in Plan.trainer.

    candidates: sets of GPUs that the trainer may have, the most wanted first; () without one.
    """

    serve: tuple[Gpu, ...]
    trainer: str
    candidates: tuple[tuple[Gpu, ...], ...] = ()

    def training_parts(self, shape: TargetShape, draft: DraftShape | None, wishes: Wishes) -> tuple[Part, ...]:
        """What a trainer takes in this layout; on the CPU, or on each of its GPUs."""
        if draft is None:
            return ()
        gpus = max(map(len, self.candidates), default=0)
        return trainer_parts(shape, draft, wishes, on_gpu=gpus > 0, gpus=gpus)


def layouts(
    inventory: Inventory,
    pool: Sequence[Gpu],
    shape: TargetShape | None,
    draft: DraftShape | None,
    wishes: Wishes,
) -> list[Layout]:
    """Every layout that the wishes allow, in order of preference; never empty.

    The strongest equal GPUs serve, as many as are of use; with each set of them the trainer has a GPU of its own, the
    CPU where enough of its cores are left, a serving GPU, or the CPU all the same. No training comes last. A GPU that
    the user named for training is the trainer's own if it can be, and so is any where the shape is not known: sharing
    one takes an account of its memory. What the user named is in every layout. Raises UsageError, naming the flag,
    where a wish cannot be fulfilled.
    """
    fits, useful = tensor_parallel_sizes(shape, draft), useful_gpus(shape)
    serve = _named("--serve-gpus", wishes.serve_gpus, pool, inventory)
    train = _named("--train-gpus", wishes.train_gpus, pool, inventory) if wishes.training else None
    if serve == ():
        raise UsageError("--serve-gpus cpu: that would leave the GPUs idle", remedy="--gpus cpu serves on the CPU")
    if train and len(train) > 1:
        _check_training(train, serve or (), wishes)

    def sets(gpus: Sequence[Gpu]) -> list[tuple[Gpu, ...]]:
        return [serve] if serve else list(_serving_sets(inventory, gpus, wishes.tp, fits, useful))

    if serve:
        _check_named(serve, wishes, fits)
    elif not sets(pool):
        raise _no_set(pool, wishes, fits)
    found: list[Layout] = []
    if wishes.training and train != ():
        for chosen in sets([gpu for gpu in pool if gpu not in (train or ())]):
            rest = [gpu for gpu in pool if gpu not in chosen]
            candidates: tuple[tuple[Gpu, ...], ...] = tuple((gpu,) for gpu in _weakest_first(rest))
            if train:
                candidates = (train,) if all(gpu in rest for gpu in train) else ()
            if candidates:
                found.append(Layout(chosen, "own", candidates))
        if train is None or len(train) == 1:
            sharing = [(chosen, [gpu for gpu in chosen if train is None or gpu in train]) for chosen in sets(pool)]
            found += [Layout(chosen, "shared", ((max(shared, key=usable),),)) for chosen, shared in sharing if shared]
        elif not found:
            raise _none_left(wishes)
    if wishes.training and not train:
        found += [Layout(chosen, "cpu") for chosen in sets(pool)]
    if train is None and shape is not None:
        places = {chosen: place for place, chosen in enumerate(sets(pool))}
        found.sort(key=lambda layout: (places[layout.serve], _rank(layout, inventory, draft, wishes)))
    if not wishes.training or (train is None and wishes.train_cores is None):
        found += [Layout(chosen, "off") for chosen in sets(pool)]
    return found


def _named(flag: str, text: str | None, pool: Sequence[Gpu], inventory: Inventory) -> tuple[Gpu, ...] | None:
    """See `named_gpus`; pool: what `--gpus` leaves of the machine."""
    named = named_gpus(flag, text, inventory.gpus)
    if out := ", ".join(str(gpu.index) for gpu in named or () if gpu not in pool):
        raise UsageError(f"{flag}: GPU {out} is not among --gpus", remedy="name it there too, or leave --gpus out")
    return named


def _rank(layout: Layout, inventory: Inventory, draft: DraftShape | None, wishes: Wishes) -> int:
    """Among layouts with the same serving GPUs."""
    if layout.trainer == "cpu" and draft is not None:
        _, cores, _ = cores_for(inventory, layout.serve, wishes, training=True)
        return 1 if len(cores) * _WEIGHTS_OF_CORE >= draft.parameters else 3
    return 0 if layout.trainer == "own" else 2


def _check_named(serve: tuple[Gpu, ...], wishes: Wishes, fits: Callable[[int], bool]) -> None:
    count, flag = len(serve), f"--serve-gpus {wishes.serve_gpus}"
    if wishes.tp not in (None, count):
        raise UsageError(f"--tp {wishes.tp} needs {wishes.tp} of --serve-gpus", why=f"{count} are named")
    if not fits(count):
        raise UsageError(f"{flag}: the target cannot be spread over {count} GPUs", why=_possible(fits, count))
    if count > 1 and any(gpu.mig for gpu in serve):
        raise UsageError(f"{flag}: slices of a GPU cannot work together", remedy="name one of them")


def _check_training(train: tuple[Gpu, ...], serve: tuple[Gpu, ...], wishes: Wishes) -> None:
    """Of several that the user named."""
    flag = f"--train-gpus {wishes.train_gpus}"
    if any(gpu.mig for gpu in train):
        raise UsageError(f"{flag}: slices of a GPU cannot work together", remedy="name one of them")
    if both := ", ".join(str(gpu.index) for gpu in train if gpu in serve):
        raise UsageError(
            f"{flag}: GPU {both} is to serve too",
            why="one GPU can be shared, where it trains alone",
            remedy="name others, or one alone",
        )


def _none_left(wishes: Wishes) -> UsageError:
    return UsageError(
        f"--train-gpus {wishes.train_gpus}: too few GPUs would be left to serve",
        remedy="name fewer; one alone can be shared",
    )


def _no_set(pool: Sequence[Gpu], wishes: Wishes, fits: Callable[[int], bool]) -> UsageError:
    """Only `--tp` can leave no set: one GPU always is one."""
    most = max(len(group) for group in equal_groups(pool))
    what = f"--tp {wishes.tp}"
    if wishes.tp and not fits(wishes.tp):
        return UsageError(
            f"{what}: the target cannot be spread over so many GPUs", why=_possible(fits, max(most, wishes.tp))
        )
    slices = "; slices of a GPU cannot work together" if any(gpu.mig for gpu in pool) else ""
    return UsageError(f"{what} needs {wishes.tp} equal GPUs", why=f"there are {most} at most{slices}")


def _serving_sets(
    inventory: Inventory, pool: Sequence[Gpu], tp: int | None, fits: Callable[[int], bool], useful: int
) -> Iterator[tuple[Gpu, ...]]:
    """Sets of equal GPUs, those of the strongest make first; of a make the largest that is of use, the others later."""
    for group in equal_groups(pool):
        sizes = sorted(range(1, len(group) + 1), key=lambda size: (size > useful, size if size > useful else -size))
        for size in sizes:
            if fits(size) and tp in (None, size) and (chosen := best_set(group, size, inventory)):
                yield chosen


def _weakest_first(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    groups = [sorted(group, key=lambda gpu: (usable(gpu), -gpu.index)) for group in equal_groups(gpus)]
    return tuple(gpu for group in reversed(groups) for gpu in group)


def _possible(fits: Callable[[int], bool], most: int) -> str:
    sizes = ", ".join(str(size) for size in range(1, most + 1) if fits(size))
    return f"its heads and layers divide by {sizes}"
