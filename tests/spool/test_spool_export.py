"""Exports: what SpecForge's own loader makes of them, and what another spool takes up again."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from spool_traffic import LAYOUT, bits, is_exact, states, token_ids

from tide_cli.errors import TideError
from tide_cli.spool.export import export
from tide_cli.spool.importing import check_export, open_spool, read_export, take_up
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.writer import SpoolWriter

SIZE = LAYOUT.size_for(40)


def ignore(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture
def exported(open_writer, open_reader, store, tmp_path) -> Path:
    """An export of six samples, some without their first rows, both splits among them."""
    writer, reader = open_writer(pages=40, held_out_share=0.4), open_reader()
    for seed in range(1, 7):
        store(writer, seed=seed, length=8 + seed, first=seed % 3, prompt=4)
    assert {info.split for info in reader.samples()} == {"train", "held_out"}
    done = export(reader, reader.samples(), tmp_path / "export", ignore)
    assert (done.samples, done.tokens) == (6, sum(info.tokens for info in reader.samples()))
    assert (done.overwritten, done.damaged) == (0, 0)
    writer.close()
    return tmp_path / "export"


def test_what_an_import_would_refuse_is_left_out(open_writer, open_reader, store, tmp_path):
    writer, reader = open_writer(pages=40), open_reader()
    store(writer, seed=10, length=20)  # holds NaNs
    with pytest.raises(TideError, match="not one of the samples can be used") as refused:
        export(reader, reader.samples(), tmp_path / "export", ignore)
    assert refused.value.why == "their values are not finite: the target overflowed"
    store(writer, seed=2, length=8)
    done = export(reader, reader.samples(), tmp_path / "export", ignore)
    assert (done.samples, done.not_finite, done.damaged) == (1, 1, 0)
    assert len(read_export(tmp_path / "export").samples) == 1
    writer.close()


def test_an_export_that_was_killed_is_called_so(exported, open_reader, tmp_path):
    reader = open_reader()
    (exported / "manifest.json").rename(exported / "manifest.json.new")
    with pytest.raises(TideError, match="not empty") as caught:
        export(reader, reader.samples(), exported, ignore)
    assert "unfinished export" in caught.value.why
    (exported / "mine").touch()
    with pytest.raises(TideError, match="not empty") as caught:
        export(reader, reader.samples(), exported, ignore)
    assert caught.value.why is None


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EACCES, "name a folder that you can write to"), (errno.ENOSPC, "free some space, or name another folder")],
)
def test_a_folder_that_cannot_be_written_and_a_full_disk(
    exported, open_reader, tmp_path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
):
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tide_cli.spool.export._write", fails)
    with pytest.raises(TideError, match="cannot export to") as caught:
        export((reader := open_reader()), reader.samples(), tmp_path / "out", ignore)
    assert (caught.value.why, caught.value.remedy) == (os.strerror(number), remedy)
    assert not (tmp_path / "out").exists()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.ckpt"))


def test_specforge_reads_it(exported, open_reader):
    from specforge.algorithms.eagle3.providers import create_registration
    from specforge.data.preprocessing import OfflineEagle3Dataset
    from specforge.runtime.data_plane.feature_dataloader import FeatureDataLoader
    from specforge.runtime.data_plane.feature_store import LocalFeatureStore
    from specforge.training.vocab_mapping import count_effective_feature_tokens

    provider = create_registration().providers.offline_for("text")
    reader, seen = open_reader(), 0
    for split in ("train", "held_out"):
        source = provider.build_reader(str(exported / split), run_id="r", ttt_length=3, max_len=64)
        source.validate_files = True  # looks into every file: keys, tensors
        refs = source.read()
        infos = sorted(reader.samples(split=split), key=lambda info: info.id)
        assert [ref.num_tokens for ref in refs] == [info.tokens for info in infos]
        loader = FeatureDataLoader(
            LocalFeatureStore("r"),
            refs=refs,
            batch_size=2,
            drop_last=False,
            collate_fn=provider.build_collator(),
            per_sample_transform=provider.build_normalizer(64),
        )
        batches = list(loader)
        for position, info in enumerate(infos):
            sample, batch = reader.read(info), batches[position // 2].tensors
            row, count = position % 2, info.tokens
            assert batch["input_ids"][row, :count].tolist() == sample.tokens.tolist()
            assert torch.equal(bits(batch["hidden_state"][row, :count]), bits(sample.aux))
            assert torch.equal(bits(batch["target"][row, :count]), bits(sample.final))
            # SpecForge's loader itself takes the last token out: nothing follows it
            assert batch["loss_mask"][row, :count].tolist() == [*sample.loss_mask.long().tolist()[:-1], 0]
            assert batch["attention_mask"][row].sum() == count
            seen += 1
        counted = count_effective_feature_tokens(str(exported / split))
        assert sum(counted.values()) == sum(info.generated for info in infos)
    assert seen == 6
    data = OfflineEagle3Dataset([str(path) for path in files(exported)], max_len=6)
    assert len(data) == 6
    assert data[0]["hidden_state"].shape == (1, 6, 24)


def test_the_files_are_private_and_the_manifest_tells_the_rest(exported):
    for path in [exported, *exported.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    manifest = json.loads((exported / "manifest.json").read_text())
    assert (manifest["target"], manifest["hidden_size"]) == ("made-up", 8)
    assert [exported / entry["file"] for entry in manifest["samples"]] == sorted(
        files(exported), key=lambda path: path.name
    )


def test_a_full_folder_is_refused_and_a_failed_export_leaves_nothing(exported, open_reader, tmp_path):
    reader = open_reader()
    with pytest.raises(TideError, match="is not empty"):
        export(reader, reader.samples(), exported, ignore)
    assert len(files(exported)) == 6
    with pytest.raises(TideError, match="no such sample"):
        export(reader, [], tmp_path / "other", ignore)
    (tmp_path / "empty").mkdir()

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    for name in ("other", "empty"):
        with pytest.raises(KeyboardInterrupt):
            export(reader, reader.samples(), tmp_path / name, interrupt)
    assert not (tmp_path / "other").exists()
    assert list((tmp_path / "empty").iterdir()) == []
    with pytest.raises(TideError, match="cannot export"):
        export(reader, reader.samples(), tmp_path / "export" / "manifest.json" / "below", ignore)


def test_samples_overwritten_or_damaged_are_left_out(open_writer, open_reader, store, tmp_path):
    writer, reader = open_writer(pages=12), open_reader()
    for seed in (1, 2, 3):
        store(writer, seed=seed, length=12)
    infos = reader.samples()
    store(writer, seed=4, length=16)
    writer._ring.aux[infos[0].pages[-1] * 4, 0] ^= 1
    done = export(reader, infos, tmp_path / "export", ignore)
    assert (done.samples, done.overwritten, done.damaged) == (1, 1, 1)
    assert len(files(tmp_path / "export")) == 1


def test_where_nothing_can_be_read_there_is_no_export(open_writer, open_reader, store, tmp_path):
    writer, reader = open_writer(), open_reader()
    store(writer, seed=1, length=12)
    writer._ring.aux[:] ^= 1
    with pytest.raises(TideError, match="not one of the samples can be used"):
        export(reader, reader.samples(), tmp_path / "export", ignore)
    assert not (tmp_path / "export").exists()


def test_a_ring_that_is_cut_short_is_not_blamed_on_the_export(open_writer, open_reader, store, tmp_path, folder):
    store(open_writer(), seed=1, length=12)
    reader = open_reader()
    os.truncate(folder / "ring.bin", 4096)
    with pytest.raises(TideError, match=r"the spool folder .* cannot be used") as caught:
        export(reader, reader.samples(), tmp_path / "export", ignore)
    assert "was cut to 4096" in caught.value.why
    assert not (tmp_path / "export").exists()


def take(exported: Path, spool: Path, *, size: int = SIZE, overwrite: bool = False):
    found = read_export(exported)
    check_export(found, ignore)
    writer, samples = open_spool(found, spool, size, overwrite=overwrite)
    try:
        return take_up(writer, found, samples, ignore)
    finally:
        writer.close()


def test_it_comes_back_bit_for_bit(exported, open_reader, tmp_path):
    other = tmp_path / "other" / "spool"
    assert vars(take(exported, other)) == {"samples": 6, "tokens": 63, "known": 0, "dropped": 0}
    here, there = open_reader(), SpoolReader.open(other)
    kept = ("run", "draft_version", "created", "tokens", "prompt_tokens", "prefix_missing", "verify_steps")
    kept = (*kept, "accepted", "split")
    for old, new in zip(here.samples(), there.samples(), strict=True):
        assert [getattr(old, name) for name in kept] == [getattr(new, name) for name in kept]
        before, after = here.read(old), there.read(new)
        assert is_exact(after)
        assert torch.equal(before.loss_mask, after.loss_mask)
    there.close()
    assert vars(take(exported, other)) == {"samples": 0, "tokens": 0, "known": 6, "dropped": 0}


def test_an_interrupted_import_goes_on(exported, tmp_path):
    other = tmp_path / "other" / "spool"
    found = read_export(exported)
    writer, samples = open_spool(found, other, SIZE, overwrite=False)

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_up(writer, found, samples, interrupt)
    writer.close()
    done = take(exported, other)
    assert (done.samples, done.known) == (4, 2)
    reader = SpoolReader.open(other)
    assert all(is_exact(reader.read(info)) for info in reader.samples())
    assert len(reader.samples()) == 6
    reader.close()


@pytest.mark.parametrize("layout", [RowLayout(8, 4, target="another"), RowLayout(16, 4, target="made-up")])
def test_another_kind_of_spool_refuses_it(exported, tmp_path, layout: RowLayout):
    other = tmp_path / "other"
    SpoolWriter.open(other, layout, layout.size_for(40), run="r", max_sample_tokens=24, held_out_share=0.5).close()
    with pytest.raises(TideError, match="another kind") as caught:
        take(exported, other)
    assert f"{layout.target} (hidden size {layout.hidden_size})" in caught.value.why
    reader = SpoolReader.open(other)
    assert reader.samples() == []
    reader.close()


def test_room_is_made_only_when_asked_for(exported, tmp_path):
    other = tmp_path / "other"
    writer = SpoolWriter.open(other, LAYOUT, LAYOUT.size_for(24), run="r", max_sample_tokens=24, held_out_share=0.5)
    for seed in (11, 12, 13):
        aux, final = states(seed, 900)
        writer.put_rows(str(seed), 0, aux[:16], final[:16])
        assert writer.finish(str(seed), token_ids(seed, 17), 2, draft_version=0, verify_steps=1, accepted_tokens=0)
    writer.close()
    with pytest.raises(TideError, match="too little room") as caught:
        take(exported, other)
    assert "--overwrite" in caught.value.remedy
    reader = SpoolReader.open(other)
    assert len(reader.samples()) == 3
    assert take(exported, other, overwrite=True).samples == 6
    assert all(is_exact(reader.read(info)) for info in reader.samples())
    assert 6 < len(reader.samples()) < 9
    reader.close()
    with pytest.raises(TideError, match="does not fit"):
        take(exported, tmp_path / "small", size=LAYOUT.size_for(7), overwrite=True)
    assert not (tmp_path / "small").exists()


def change_manifest(exported: Path, change: Callable[[dict], object]) -> None:
    path = exported / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(format="x"), "is not the manifest"),
        (lambda m: m.update(version=9), "this TIDE reads 1"),
        (lambda m: m.pop("target"), "target"),
        (lambda m: m.update(hidden_size=7), "multiple of 4"),
        (lambda m: m["samples"][0].pop("sha256"), "sha256"),
        (lambda m: m["samples"][0].update(file="../../etc/passwd"), "outside"),
        (lambda m: m["samples"][0].update(tokens="9"), "tokens"),
        (lambda m: m["samples"][0].update(tokens=True), "tokens"),
        (lambda m: m["samples"][0].update(split="both"), "contradict"),
        (lambda m: m["samples"][0].update(prompt_tokens=999), "contradict"),
        (lambda m: m.update(samples=[1]), "manifest.json"),
        (lambda m: m.update(samples=["x"]), "contents are not what they should be"),
        (lambda m: m.update(target=None), "target or hidden_size"),
        (lambda m: m.update(hidden_size=8.9), "target or hidden_size"),
        (lambda m: m.update(hidden_size="8"), "target or hidden_size"),
        (lambda m: m["samples"][0].update(created=float("nan")), "NaN is no number"),
        (lambda m: m["samples"][0].update(created=1e300), "created is 1e+300"),
        (lambda m: m["samples"][0].update(accepted=10**30), "accepted is 1000"),
        (lambda m: m["samples"][0].update(run="r" * 1000), "run is '" + "r" * 59 + "…'"),
        (lambda m: m["samples"][0].update(prefix_missing=2**30, prompt_tokens=0), "it ends at position 10737418"),
        (lambda m: m["samples"][0].update(file="a\0b"), "contents are not what they should be"),
    ],
)
def test_a_wrong_manifest_is_refused(exported, change, words: str):
    change_manifest(exported, change)
    with pytest.raises(TideError, match="is no export") as caught:
        read_export(exported)
    assert words in caught.value.why


def test_a_sample_that_is_named_twice_comes_once(exported, tmp_path):
    change_manifest(exported, lambda manifest: manifest["samples"].append(manifest["samples"][0]))
    assert vars(take(exported, tmp_path / "other" / "spool")) == {"samples": 6, "tokens": 63, "known": 1, "dropped": 0}


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(TideError, match="is no export"):
            read_export(folder)


def rewrite(exported: Path, change: Callable[[dict], object]) -> None:
    """Another file in place of the first, with a manifest that agrees."""
    import hashlib

    path = exported / json.loads((exported / "manifest.json").read_text())["samples"][0]["file"]
    tensors = torch.load(path, weights_only=True)
    change(tensors)
    torch.save(tensors, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    change_manifest(exported, lambda m: m["samples"][0].update(sha256=digest))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("hidden_state"), "no hidden_state"),
        (lambda t: t.update(hidden_state=t["hidden_state"][..., :4]), "hidden_state is"),
        (lambda t: t.update(aux_hidden_state=t["aux_hidden_state"].float()), "aux_hidden_state is"),
        (lambda t: t.update(input_ids=[1, 2]), "not what they should be"),
        (lambda t: t.update(input_ids=t["input_ids"] - 10**6), "cannot be right"),
        (lambda t: t.update(loss_mask=1 - t["loss_mask"]), "cannot be right"),
        (lambda t: t.update(hidden_state=t["hidden_state"].to("meta")), "not stored value by value"),
        (lambda t: t.update(aux_hidden_state=t["aux_hidden_state"].to_sparse()), "not stored value by value"),
        (lambda t: t["aux_hidden_state"][0, 2].fill_(float("nan")), "aux_hidden_state has values that are not finite"),
        (lambda t: t["hidden_state"][0, -1, -1].fill_(float("inf")), "hidden_state has values that are not finite"),
    ],
)
def test_a_wrong_tensor_is_refused_before_anything_is_written(exported, tmp_path, change, words: str):
    rewrite(exported, change)
    with pytest.raises(TideError, match="cannot be imported") as caught:
        take(exported, tmp_path / "other")
    assert words in caught.value.why
    assert not (tmp_path / "other").exists()


def test_a_damaged_or_hostile_file_is_refused(exported, tmp_path):
    first = exported / json.loads((exported / "manifest.json").read_text())["samples"][0]["file"]
    shutil.copy(first, tmp_path / "kept")
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(TideError, match="cannot be imported") as caught:
        check_export(read_export(exported), ignore)
    assert "SHA-256" in caught.value.why
    first.unlink()
    with pytest.raises(TideError, match="cannot be imported"):
        check_export(read_export(exported), ignore)
    shutil.copy(tmp_path / "kept", first)
    rewrite(exported, lambda tensors: tensors.update(more=Path))  # a pickle of anything but tensors
    with pytest.raises(TideError, match="cannot be imported"):
        check_export(read_export(exported), ignore)


def test_a_pipe_in_the_place_of_the_manifest_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(TideError, match="is no export") as caught:
        read_export(tmp_path)
    assert caught.value.why == "manifest.json is no file"
