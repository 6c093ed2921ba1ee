"""What goes in comes out: positions, masks, cuts, drops and their counters."""

from __future__ import annotations

import stat

import pytest
import torch
from spool_traffic import LAYOUT, bits, is_exact, states, token_ids

from tide_cli.spool.index import read_totals


def test_a_sample_comes_back_bit_for_bit(open_writer, open_reader, store):
    assert store(open_writer(), seed=5, length=11, prompt=4) == 1
    reader = open_reader()
    (info,) = reader.samples()
    sample = reader.read(info)
    assert is_exact(sample)
    assert (info.run, info.draft_version, info.verify_steps, info.accepted) == ("run-1", 3, 5, 7)
    assert (info.tokens, info.prompt_tokens, info.prefix_missing) == (11, 4, 0)
    assert sample.loss_mask.tolist() == [False] * 4 + [True] * 7
    assert sample.tokens.dtype == torch.int64
    assert reader.totals() == {"samples": 1, "tokens": 11}


def test_float32_rows_are_rounded_like_torch_does(open_writer, open_reader):
    writer, hidden = open_writer(), LAYOUT.hidden_size
    aux, final = torch.randn(9, 3 * hidden), torch.randn(9, hidden)
    writer.put_rows("a", 0, aux, final)
    writer.finish("a", token_ids(1, 9), 3, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    sample = reader.read(reader.samples()[0])
    assert torch.equal(sample.aux, aux.bfloat16())
    assert torch.equal(sample.final, final.bfloat16())


def test_rows_that_are_no_contiguous_tensor_are_taken(open_writer, open_reader):
    writer, (aux, final) = open_writer(), states(3, 900)
    both = torch.cat([aux[:10], final[:10]], dim=1)
    writer.put_rows("a", 0, both[:, : aux.shape[1]], both[:, aux.shape[1] :])
    writer.finish("a", token_ids(3, 10), 1, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    assert is_exact(reader.read(reader.samples()[0]))


def test_a_cached_prefix_is_missing_and_said_so(open_writer, open_reader, store):
    store(open_writer(), seed=5, length=13, first=6, prompt=9)
    reader = open_reader()
    (info,) = reader.samples()
    sample = reader.read(info)
    assert (info.prefix_missing, info.tokens) == (6, 7)
    assert is_exact(sample)
    assert sample.loss_mask.tolist() == [False] * 3 + [True] * 4


def test_requests_in_turn_and_a_retracted_one(open_writer, open_reader):
    writer = open_writer()
    rows = {seed: states(seed, 900) for seed in (1, 2)}

    def put(seed: int, start: int, stop: int, source: int | None = None) -> None:
        aux, final = rows[source or seed]
        writer.put_rows(f"r{seed}", start, aux[start:stop], final[start:stop])

    put(1, 0, 5)
    put(2, 3, 6)
    put(1, 5, 8, source=2)  # wrong rows, which the second prefill below replaces
    put(2, 6, 7)
    put(1, 2, 6)
    put(2, 0, 4)  # retracted, and its prefix is computed this time
    put(1, 6, 9)
    put(2, 4, 10)
    for seed in (1, 2):
        writer.finish(f"r{seed}", token_ids(seed, 11), 2, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    samples = [reader.read(info) for info in reader.samples()]
    assert [sample.info.tokens for sample in samples] == [10, 9]
    assert all(is_exact(sample) for sample in samples)


def test_rows_beyond_the_tokens_are_ignored(open_writer, open_reader):
    writer, (aux, final) = open_writer(), states(4, 900)
    writer.put_rows("a", 0, aux[:11], final[:11])
    writer.finish("a", token_ids(4, 8), 2, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    (info,) = reader.samples()
    assert (info.tokens, len(info.pages)) == (8, 2)
    assert is_exact(reader.read(info))


@pytest.mark.parametrize("chunk", [1, 3, 7, 30, 80])
def test_a_long_sample_keeps_its_end(open_writer, open_reader, chunk: int):
    writer, (aux, final) = open_writer(), states(6, 900)
    for start in range(0, 80, chunk):
        stop = min(start + chunk, 80)
        writer.put_rows("a", start, aux[start:stop], final[start:stop])
    writer.finish("a", token_ids(6, 81), 2, draft_version=0, verify_steps=1, accepted_tokens=0)
    reader = open_reader()
    (info,) = reader.samples()
    assert info.prefix_missing + info.tokens == 80
    assert 24 - 4 < info.tokens <= 24
    assert is_exact(reader.read(info))


def test_what_cannot_be_used_is_dropped_and_counted(open_writer, open_reader, store, folder):
    writer, (aux, final) = open_writer(), states(1, 900)

    def finish(rid: str, prompt: int = 1) -> int | None:
        return writer.finish(rid, token_ids(1, 9), prompt, draft_version=0, verify_steps=1, accepted_tokens=0)

    assert finish("never seen") is None
    writer.put_rows("gap", 0, aux[:3], final[:3])
    writer.put_rows("gap", 4, aux[4:6], final[4:6])
    writer.put_rows("gap", 6, aux[6:9], final[6:9])
    assert finish("gap") is None
    writer.put_rows("prompt only", 0, aux[:9], final[:9])
    assert finish("prompt only", prompt=9) is None
    writer.put_rows("gone", 0, aux[:9], final[:9])
    writer.abort("gone")
    writer.abort("gone")
    writer.put_rows("given up", 0, aux[:9], final[:9])
    writer.refuse("given up", "queue_full")
    writer.put_rows("given up", 9, aux[9:12], final[9:12])
    assert finish("given up") is None
    dropped = {"dropped_empty": 1, "dropped_gap": 1, "dropped_no_output": 1, "dropped_aborted": 1}
    expected = {"samples": 0, "tokens": 0, "dropped_queue_full": 1} | dropped
    assert writer.counters() == expected
    assert read_totals(folder) == expected
    # a name may come back, and all pages are free again: a sample of the whole ring's size fits twice over
    assert store(writer, seed=1, length=24) == 1
    assert store(writer, seed=2, length=24) == 2
    reader = open_reader()
    assert all(is_exact(reader.read(info)) for info in reader.samples())


def test_listing_by_split_age_and_number(open_writer, open_reader, store):
    writer = open_writer(pages=60)
    ids = [store(writer, seed=seed, length=6) for seed in range(1, 21)]
    reader = open_reader()
    assert [info.id for info in reader.samples()] == ids[::-1]
    assert [info.id for info in reader.samples(newest=3)] == ids[:-4:-1]
    assert [info.id for info in reader.samples(since_id=15)] == ids[:14:-1]
    held_out = [info.id for info in reader.samples(split="held_out")]
    train = [info.id for info in reader.samples(split="train")]
    assert sorted(held_out + train) == ids
    assert held_out
    assert train


def test_wrong_rows_are_a_programming_error(open_writer):
    writer, (aux, final) = open_writer(), states(1, 4)
    for wrong in [(0, aux[:, 1:], final), (0, aux, final[:3]), (-1, aux, final)]:
        with pytest.raises(ValueError, match="do not fit"):
            writer.put_rows("a", *wrong)


def test_only_the_owner_can_look_inside(open_writer, store, folder):
    store(open_writer(), seed=1, length=6)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} >= {"ring.bin", "index.db", "index.db-wal"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_states_of_the_helper_differ_in_every_row():
    aux, _ = states(1, 50)
    assert len({tuple(row) for row in bits(aux).tolist()}) == 50
