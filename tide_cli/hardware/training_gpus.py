"""Which GPUs train beside the trainer's first one, where the user names none.

Those of its make that serve no other purpose: on which not even a second appliance has room. Where one has, it serves
as much again, and a trainer gains little: an H100 trains gpt-oss-120b's draft on 17,000 tokens/s, by the arithmetic of
the simulation, which in a cycle of 90 s is 1.5 million, while the 256 newest samples hold 130,000 if each has 512. An
A6000 comes to 6,500, and adding up gradients of 0.6 GB over PCI Express, at 20 GB/s, makes its step of 79 ms 31 to 61
ms longer: two come to 1.4 times that, four to 2.5 times. Two H100 gain nothing over PCI Express, over NVLink they come
to 1.8 times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tide_cli.hardware.gpus import equal_groups, usable
from tide_cli.hardware.inventory import Gpu


def training_gpus(
    first: Gpu, idle: Sequence[Gpu], needed: int, can_serve: Callable[[Sequence[Gpu]], bool]
) -> tuple[Gpu, ...]:
    """`first` and those of the idle GPUs that train with it. needed: bytes on each; can_serve: whether a second
    appliance has room on so many GPUs."""
    make = next(group for group in equal_groups([first, *idle]) if first in group)
    others = [gpu for gpu in make if gpu != first and usable(gpu) >= needed]
    if not others or first.mig or usable(first) < needed or can_serve(idle):
        return (first,)
    return (first, *others)
