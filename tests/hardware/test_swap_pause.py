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


def test_what_the_gpus_share() -> None:
    """H = 2880, I = 16384, 32 heads and 8 of keys and values of 128, a vocabulary of 32,000.

    Not shared: fc of 3H*H = 24,883,200 weights and norms of 4H = 11,520, and the map. An eighth of the rest is, by
    rows, q of 4 heads, 512*2H = 2,949,120, k and v of 1 head, 2*128*2H = 1,474,560, gate and up of 2*2048*H =
    11,796,480, and head rows of 4000*H = 11,520,000; by columns o of 512*H = 1,474,560, down of 2048*H = 5,898,240.
    """
    whole, by_rows, by_columns = 24_894_720, 27_740_160, 7_372_800
    assert whole + 8 * (by_rows + by_columns) == WEIGHTS
    pause = swap_pause(DRAFT, Wishes(), with_gpus(8).gpus)
    assert pause.copied_bytes == 2 * (whole + by_rows + by_columns) + MAP == 120_271_360
    assert pause.pageable_bytes == 2 * by_columns == 14_745_600
    # 105.5 MB at 50.4 GB/s take 2.09 ms, 14.7 MB at 0.2 * 63.0 = 12.6 GB/s take 1.17 ms
    assert pause.milliseconds == pytest.approx(2.093 + 1.170, abs=0.001)
    # the next 8 GPUs halve all but the one head of keys and values
    pause = swap_pause(DRAFT, Wishes(), with_gpus(16).gpus)
    assert pause.copied_bytes == 2 * whole + (by_rows + 1_474_560) + by_columns + MAP
    assert pause.pageable_bytes == by_columns


def test_one_gpu_takes_all_weights_and_the_map() -> None:
    pause = swap_pause(DRAFT, Wishes(), with_gpus(1).gpus)
    assert (pause.copied_bytes, pause.pageable_bytes) == (2 * WEIGHTS + MAP, 0)
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
