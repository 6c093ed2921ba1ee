"""The estimate of a swap's pause, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import SHAPES, machine, with_gpus

from tide_cli.hardware.inventory import Gpu
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.swap_pause import swap_pause
from tide_cli.hardware.wishes import Wishes

DRAFT = SHAPES["gpt-oss-120b"].usual_draft
# 305,798,400 weights (test_plans.py) of 2 bytes, and a map of 32,000 tokens of 8
WEIGHTS, MAP = 305_798_400, 256_000


def test_bytes_over_the_links_bandwidth() -> None:
    """16 lanes * 32 GT/s * 128/130 are 504.1 Gbit/s, 63.0 GB/s, of which 0.8 are 50.4: 611.9 MB take 12.1 ms."""
    pause = swap_pause(DRAFT, Wishes(), with_gpus(1).gpus)
    assert pause.copied_bytes == 2 * WEIGHTS + MAP == 611_852_800
    assert pause.bytes_per_second == pytest.approx(0.8 * 16 * 32e9 * 128 / 130 / 8)
    assert pause.milliseconds == pytest.approx(12.14, abs=0.01)


def test_each_gpu_takes_its_share_of_the_weights_and_the_whole_map() -> None:
    assert swap_pause(DRAFT, Wishes(), with_gpus(8).gpus).copied_bytes == 2 * WEIGHTS // 8 + MAP
    assert swap_pause(DRAFT, Wishes(draft_bytes=4), with_gpus(1).gpus).copied_bytes == 4 * WEIGHTS + MAP


@pytest.mark.parametrize(
    ("vendor", "capability", "generation"),
    [
        ("nvidia", (8, 0), "4.0"),  # A100
        ("nvidia", (8, 9), "4.0"),  # RTX 4090
        ("nvidia", (9, 0), "5.0"),  # H100
        ("nvidia", (12, 0), "5.0"),  # RTX PRO 6000
        ("nvidia", (), "4.0"),  # not told: the slower one
        ("amd", (9, 0, 10), "4.0"),  # MI250
        ("amd", (9, 4, 2), "5.0"),  # MI300X
    ],
)
def test_the_link_by_the_make(vendor: str, capability: tuple[int, ...], generation: str) -> None:
    gpu = Gpu(0, "some GPU", 2**36, capability, vendor=vendor)
    assert f"PCI Express {generation} x16" in swap_pause(DRAFT, Wishes(), [gpu]).basis
    slower = swap_pause(DRAFT, Wishes(), [gpu, replace(gpu, capability=(8, 0))])
    assert "PCI Express 4.0 x16" in slower.basis


def test_a_plan_has_it_where_gpus_serve_a_draft() -> None:
    shape = SHAPES["gpt-oss-120b"]
    made = make_plan(machine("8xH100"), shape, Wishes(tp=4))
    assert made.swap_pause == swap_pause(DRAFT, Wishes(), machine("8xH100").gpus[:4])
    assert make_plan(machine("8xH100"), shape, Wishes(speculation=False)).swap_pause is None
    assert make_plan(machine("cpu-2"), SHAPES["smollm2-135m"], Wishes()).swap_pause is None
