"""How engine and trainer share the CPU cores."""

from __future__ import annotations

from collections.abc import Sequence

from tide_cli.errors import UsageError
from tide_cli.hardware.cores import check_cores, core_words, format_cores
from tide_cli.hardware.inventory import Gpu, Inventory
from tide_cli.hardware.wishes import Wishes


def cores_for(
    inventory: Inventory, serve: Sequence[Gpu], wishes: Wishes, *, training: bool
) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """As `divide_cores`: the engine's cores are on the nodes of its GPUs."""
    near = {gpu.numa_node for gpu in serve}
    nodes = sorted(inventory.nodes, key=lambda node: (node.number not in near, node.number))
    return divide_cores(
        [node.cores for node in nodes],
        training=training,
        serve_cores=wishes.serve_cores,
        train_cores=wishes.train_cores,
    )


def divide_cores(
    nodes: Sequence[Sequence[int]], *, training: bool, serve_cores: str | None, train_cores: str | None
) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """Cores of the engine, cores of the trainer ((): it does not run), notes.

    nodes: the cores of each NUMA node, those that should serve first. Whole nodes are given where there are several;
    the cores of one node are halved, the larger half serves. What the user named stays as it is.
    """
    available = [core for node in nodes for core in node]
    serve: Sequence[int] = _asked_cores("--serve-cores", serve_cores, available)
    train: Sequence[int] = _asked_cores("--train-cores", train_cores, available)
    if not training:
        notes = ["--train-cores has no effect: nothing is trained"] if train_cores else []
        return tuple(serve or sorted(available)), (), notes
    if not serve and not train:
        serve, train = _halves(nodes)
    elif not serve or not train:
        rest = sorted(set(available) - set(serve or train)) or sorted(available)
        serve, train = serve or rest, train or rest
    shared = set(serve) & set(train)
    notes = [f"engine and trainer share {core_words(shared)}: both will be slower"] if shared else []
    return tuple(serve), tuple(train), notes


def _halves(nodes: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The first nodes until they hold half of the cores, and the others; a single node is cut."""
    filled = [sorted(node) for node in nodes if node]
    total = sum(len(node) for node in filled)
    if len(filled) == 1:
        cores, middle = filled[0], (total + 1) // 2
        return (cores, cores) if total == 1 else (cores[:middle], cores[middle:])
    serve = list(filled[0])
    last = 1
    while 2 * len(serve) < total and last < len(filled) - 1:
        serve += filled[last]
        last += 1
    return sorted(serve), sorted(core for node in filled[last:] for core in node)


def _asked_cores(flag: str, text: str | None, available: Sequence[int]) -> tuple[int, ...]:
    """The cores a user named with `flag`, () for None. Raises UsageError for malformed or foreign ones."""
    cores = check_cores(flag, text)
    if foreign := sorted(set(cores) - set(available)):
        raise UsageError(
            f"{flag}: {core_words(foreign)} {'is' if len(foreign) == 1 else 'are'} not available here",
            remedy=f"choose from {format_cores(available)}",
        )
    return cores
