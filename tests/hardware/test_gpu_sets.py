"""Which of equal GPUs are taken together."""

from __future__ import annotations

import itertools
import random

import pytest

from tide_cli.errors import UsageError
from tide_cli.hardware import gpus as module
from tide_cli.hardware.gpus import best_set, fast_pairs, named_gpus
from tide_cli.hardware.inventory import Gpu, Inventory, Link

GIB = 2**30


def machine(count: int, links: list[tuple[int, int]], used: dict[int, int] | None = None) -> Inventory:
    gpus = tuple(Gpu(i, "x", 80 * GIB, (9, 0), memory_used=(used or {}).get(i, 0)) for i in range(count))
    return Inventory((), gpus, tuple(Link(first, second, "nvlink") for first, second in links))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_first_of_the_freest_with_the_most_fast_links(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [pair for pair in itertools.combinations(range(7), 2) if rng.random() < rng.choice([0, 0.3, 1])]
    found = machine(7, pairs, {rng.randrange(7): GIB})
    for size in range(1, 8):
        free = sorted((gpu.memory_free for gpu in found.gpus), reverse=True)[:size]
        sets = [
            one
            for one in itertools.combinations(found.gpus, size)
            if sorted((gpu.memory_free for gpu in one), reverse=True) == free
        ]
        most = max(fast_pairs(one, found) for one in sets)
        assert fast_pairs(best_set(found.gpus, size, found), found) == most
        assert best_set(found.gpus, size, found) in sets


@pytest.mark.parametrize("linked", [False, True])
def test_where_no_set_can_be_better_the_first_is_taken(linked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine(72, list(itertools.combinations(range(72), 2)) if linked else [])
    looked_at: list[object] = []
    monkeypatch.setattr(
        module, "fast_pairs", lambda one, inventory: looked_at.append(one) or fast_pairs(one, inventory)
    )
    assert [gpu.index for gpu in best_set(found.gpus, 8, found)] == list(range(8))
    assert len(looked_at) == 1


@pytest.mark.parametrize("text", ["0,0", "0-2,1", "1,GPU-b"])
def test_a_gpu_named_twice_is_a_slip(text: str) -> None:
    gpus = [Gpu(i, "x", 80 * GIB, (9, 0), uuid=f"GPU-{uuid}") for i, uuid in enumerate("abc")]
    with pytest.raises(UsageError, match=rf"--serve-gpus: '{text}' names GPU [01] twice"):
        named_gpus("--serve-gpus", text, gpus)
