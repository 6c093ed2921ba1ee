"""Ranks of one engine take the same number of draft steps, whatever each would choose by its own clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch.multiprocessing


def rank(number: int, rendezvous: str, folder: str) -> None:
    import torch.distributed as dist
    from sglang.srt.runtime_context import get_parallel

    from tide_cli.engine.plugin.speculation import _agreed

    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=number, world_size=2)
    group = SimpleNamespace(ranks=[0, 1], cpu_group=dist.group.WORLD)
    with get_parallel().override(tp_size=2, tp_group=group):
        agreed = [_agreed(steps) for steps in ([0, 3, 1] if number == 0 else [2, 2, 2])]
    Path(folder, str(number)).write_text(str(agreed))
    dist.destroy_process_group()


def test_every_rank_takes_the_first_ones_number(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(rank, (str(tmp_path / "rendezvous"), str(tmp_path)), nprocs=2)
    assert [(tmp_path / name).read_text() for name in "01"] == ["[0, 3, 1]"] * 2
