from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from spool_traffic import bits, states, token_ids

from tide_cli.errors import TideError
from tide_cli.spool.reservoir import Reservoir
from tide_cli.spool.ring import checksum, row_sums
from tide_cli.spool.samples import Sample, SampleInfo


def sample(number: int, length: int = 10) -> Sample:
    aux, final = states(number, length)
    info = SampleInfo(
        id=number,
        run="run",
        draft_version=1,
        created=number / 7,
        tokens=length,
        prompt_tokens=3,
        prefix_missing=0,
        verify_steps=2,
        accepted=4,
        split="train",
        checksum=0,
        pages=(1, 2),
    )
    tokens = torch.tensor(token_ids(number, length))
    rows = row_sums(*(states.view(torch.int16).numpy().view("<u2") for states in (aux, final)))
    info = replace(info, checksum=checksum(info, tokens.numpy(), rows))
    return Sample(info, tokens, torch.arange(length) >= 3, aux, final)


@pytest.fixture(scope="session")
def file_size(tmp_path_factory) -> int:
    reservoir = Reservoir(tmp_path_factory.mktemp("one") / "r", 2**20, seed=0)
    reservoir.offer(sample(1))
    return reservoir.size_bytes + 8  # numbers of other lengths


def test_a_sample_comes_back(tmp_path: Path):
    reservoir, offered = Reservoir(tmp_path / "r", 2**20, seed=0), sample(5)
    assert reservoir.offer(offered)
    (kept,) = Reservoir(tmp_path / "r", 2**20, seed=0).samples()
    got = kept.read()
    assert got.info == kept.info
    assert (kept.info.id, kept.info.created, kept.info.pages) == (5, 5 / 7, ())
    assert torch.equal(got.tokens, offered.tokens)
    assert torch.equal(got.loss_mask, offered.loss_mask)
    assert torch.equal(bits(got.aux), bits(offered.aux))
    assert torch.equal(bits(got.final), bits(offered.final))
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["tokens", "loss_mask", "aux", "final"])
def test_a_damaged_sample_is_not_given_out(tmp_path: Path, name: str):
    reservoir = Reservoir(tmp_path / "r", 2**20, seed=0)
    reservoir.offer(sample(5))
    (kept,) = reservoir.samples()
    with safe_open(kept.path, "pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    tensors[name].view(torch.uint8)[..., -1] ^= 1  # of an id the highest byte
    save_file(tensors, kept.path, metadata=metadata)
    assert kept.read() is None


def test_it_stays_within_its_bytes(tmp_path: Path, file_size: int):
    reservoir = Reservoir(tmp_path / "r", 6 * file_size, seed=0)
    for number in range(1, 40):
        reservoir.offer(sample(number, length=5 + number % 11))
        on_disk = sum(path.stat().st_size for path in (tmp_path / "r").iterdir())
        assert on_disk == reservoir.size_bytes <= 6 * file_size
    assert len(reservoir.samples()) > 3


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(1, 16)), st.integers(0, 5))
def test_neither_order_nor_repetition_nor_a_restart_matter(tmp_path_factory, order: list[int], again: int):
    size = 12_000
    straight = Reservoir(tmp_path_factory.mktemp("a") / "r", size, seed=1)
    shuffled = Reservoir(tmp_path_factory.mktemp("b") / "r", size, seed=1)
    for number in range(1, 16):
        straight.offer(sample(number, 16))
    for number in order[:7]:
        shuffled.offer(sample(number, 16))
    shuffled = Reservoir(shuffled._folder, size, seed=1)
    for number in order[7:] + order[:again]:
        shuffled.offer(sample(number, 16))
    kept = [entry.info.id for entry in straight.samples()]
    assert 3 < len(kept) < 15
    assert [entry.info.id for entry in shuffled.samples()] == kept


def test_old_and_new_samples_are_kept_alike(tmp_path: Path, file_size: int):
    early = 0
    for seed in range(12):
        reservoir = Reservoir(tmp_path / str(seed), 10 * file_size, seed=seed)
        for number in range(1, 41):
            reservoir.offer(sample(number))
        kept = [entry.info.id for entry in reservoir.samples()]
        assert len(kept) == 10
        early += sum(number <= 20 for number in kept)
    assert 42 < early < 78  # 120 draws at one half: 60, three standard deviations are 17


def test_leftovers_and_damaged_files_go(tmp_path: Path):
    reservoir = Reservoir(tmp_path / "r", 2**20, seed=0)
    for number in (1, 2):
        reservoir.offer(sample(number))
    first, second = reservoir.samples()
    first.path.write_bytes(first.path.read_bytes()[:100])
    (tmp_path / "r" / "half.new").write_bytes(b"half")
    assert first.read() is None
    again = Reservoir(tmp_path / "r", 2**20, seed=0)
    assert [entry.info for entry in again.samples()] == [second.info]
    assert [path.name for path in (tmp_path / "r").iterdir()] == [second.path.name]


def test_a_smaller_reservoir_shrinks_at_the_start(tmp_path: Path, file_size: int):
    reservoir = Reservoir(tmp_path / "r", 2**20, seed=0)
    for number in range(1, 11):
        reservoir.offer(sample(number))
    known = reservoir.samples()
    lowest = [entry.info.id for entry in known][:3]
    smaller = Reservoir(tmp_path / "r", 3 * file_size, seed=0)
    assert [entry.info.id for entry in smaller.samples()] == lowest
    assert known[-1].read() is None
    assert [entry.info.id for entry in reservoir.samples()] == lowest
    assert not Reservoir(tmp_path / "none", 0, seed=0).offer(sample(1))


def test_a_larger_reservoir_takes_over_all(tmp_path: Path, file_size: int):
    before = Reservoir(tmp_path / "r", 3 * file_size, seed=0)
    for number in range(1, 11):
        before.offer(sample(number))
    known = [entry.info for entry in before.samples()]
    larger = Reservoir(tmp_path / "r", 5 * file_size, seed=0)
    assert [entry.info for entry in larger.samples()] == known
    assert all(entry.read() is not None for entry in larger.samples())
    for number in range(1, 11):
        larger.offer(sample(number))
    assert len(larger.samples()) == 5


def test_a_folder_that_is_a_file(tmp_path: Path):
    (tmp_path / "r").write_text("")
    with pytest.raises(TideError, match="cannot be used"):
        Reservoir(tmp_path / "r", 2**20, seed=0)
