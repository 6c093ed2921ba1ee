"""`tide spool` as a person types it: output, refusals, exit codes, beside an appliance and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from commands import ROOT

sys.path.insert(0, str(Path(__file__).parents[1] / "spool"))

from spool_traffic import LAYOUT, LONGEST, prefix_rows, states

from tide_cli.cli import main
from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, Reservoir
from tide_cli.spool.ring import Ring
from tide_cli.spool.writer import SpoolWriter
from tide_cli.supervisor.lock import StateLock

KEPT = {"unsettled": 0, "astray": 0, "kept": 0, "kept_damaged": []}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder whose spool has four samples of 10, 9, 8 and 7 tokens, served with the drafts 0, 1, 1 and 2."""
    writer = SpoolWriter.open(
        tmp_path / "state" / "spool",
        LAYOUT,
        LAYOUT.size_for(12),
        run="r1",
        max_sample_tokens=LONGEST,
        held_out_share=0.25,
    )
    for seed in (1, 2, 3, 4):
        aux, final = states(seed, 900)
        writer.put_rows(str(seed), seed - 1, aux[seed - 1 : 10], final[seed - 1 : 10])
        ids = list(range(20 * seed, 20 * seed + 11))
        writer.finish(str(seed), ids, 4, draft_version=seed // 2, verify_steps=5, accepted_tokens=7)
    writer.refuse("x", "queue_full")
    writer.close()
    return tmp_path / "state"


def spoil(state: Path, page: int) -> None:
    ring = Ring.open(state / "spool", writable=True)
    ring.final[page * 4, 0] ^= 1
    ring.close()


def test_what_was_stored_and_what_is_held_add_up(tmp_path: Path, spool) -> None:
    """Rows that a sample shares with an earlier one are stored once, and held by both."""
    where, text = tmp_path / "state" / "spool", list(range(13))
    with closing(
        SpoolWriter.open(where, LAYOUT, LAYOUT.size_for(12), run="r", max_sample_tokens=LONGEST, held_out_share=0)
    ) as writer:
        for start in (0, 8):
            aux, final = prefix_rows(text)
            writer.put_rows("r", start, aux[start:-1], final[start:-1], tokens=text[:10])
            assert writer.finish("r", text, 10, draft_version=0, verify_steps=1, accepted_tokens=0)
    shown = spool(tmp_path / "state", "stat").stdout
    assert "2 samples, 24 tokens, 4 of them generated" in shown
    assert "stored so far  2 samples, 24 tokens, 8 of them reused" in shown


def test_looking_beside_a_running_appliance(state: Path, spool, answer) -> None:
    lock = StateLock(state / "lock")
    writer = SpoolWriter.open(state / "spool", LAYOUT, 0, run="r2", max_sample_tokens=LONGEST, held_out_share=0.25)
    try:
        figures = answer(state, "stat")
        assert (figures["samples"], figures["tokens"], figures["dropped"]) == (4, 34, {"queue_full": 1})
        assert list(figures["by_draft"]) == ["v0000", "v0001", "v0002"]
        shown = spool(state, "stat").stdout
        assert f"{figures['pages_used']} pages" in shown
        assert "dropped, queue full  1 request\n" in shown
        assert "stored so far        4 samples, 34 tokens\n" in shown
        assert answer(state, "verify") == {"good": 4, "damaged": [], "overwritten": 0, "malformed": 0} | KEPT
        assert answer(state, "export", state.parent / "out", "--draft", "v0001")["samples"] == 2
        for command in (["repair"], ["import", state.parent / "out"]):
            refused = spool(state, *command)
            assert refused.returncode == 1
            assert "an appliance already runs" in refused.stderr
            assert "tide down" in refused.stderr
            assert len(refused.stderr.splitlines()) == 2
    finally:
        writer.close()
        lock.release()


def test_listing(state: Path, spool, answer) -> None:
    rows = answer(state, "ls")
    assert [(row["id"], row["tokens"]) for row in rows] == [(4, 7), (3, 8), (2, 9), (1, 10)]
    assert rows[0]["acceptance_length"] == 2.4
    assert rows[3]["generated"] == 6
    for filters, ids in [
        (["--draft", "1"], [3, 2]),
        (["--draft", "v0002"], [4]),
        (["--min-tokens", "9"], [2, 1]),
        (["--since", "1h"], [4, 3, 2, 1]),
        (["--since", "0s"], []),
        (["--domain", "nobody's"], []),
        (["--split", "held_out"], [row["id"] for row in rows if row["split"] == "held_out"]),
    ]:
        assert [row["id"] for row in answer(state, "ls", *filters)] == ids
    assert spool(state, "ls", "--since", "0s").stdout == "no such samples\n"
    spool(state, "erase", "--all", "--yes")
    assert spool(state, "ls").stdout == "no samples\n"


def test_the_newest_are_listed_and_the_rest_is_counted(state: Path, spool) -> None:
    few = spool(state, "ls", "-n", "1")
    assert len(few.stdout.splitlines()) == 2
    assert "1 of 4" in few.stderr


def test_the_text_is_shown_only_when_asked_for(state: Path, tmp_path: Path, spool, answer) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    row = answer(state, "show", 2)
    assert (row["id"], row["prefix_missing"], row["pages"]) == (2, 1, 3)
    assert "prompt" not in row
    target = tmp_path / "made-up"
    target.mkdir()
    (target / "config.json").write_text("{}")
    missing = spool(state, "show", 2, "--text")
    assert missing.returncode == 1
    assert "--target" in missing.stderr
    Tokenizer(WordLevel({f"w{number}": number for number in range(200)}, unk_token="w0")).save(
        str(target / "tokenizer.json")
    )
    row = answer(state, "show", 2, "--text", "--target", target)
    assert row["prompt"] == "w41 w42 w43"
    assert row["answer"] == "w44 w45 w46 w47 w48 w49"
    shown = spool(state, "show", 2, "--text", "--target", target).stdout
    assert "--- prompt\nw41 w42 w43\n" in shown


def test_the_text_is_read_by_a_tokenizer_of_the_named_cache(state: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    seen: list[Path] = []

    def load(name: str, paths: Paths) -> None:
        seen.append(paths.cache)
        raise TideError("no tokenizer")

    monkeypatch.setattr("tide_cli.targets.tokenizer.load_tokenizer", load)
    (file := tmp_path / "tide.toml").write_text(f'cache_dir = "{tmp_path / "named"}"\n')
    show = ["spool", "show", "2", "--text", "--state-dir", str(state)]
    monkeypatch.setenv("TIDE_CACHE_DIR", str(tmp_path / "variable"))
    for more in ([], ["--config", str(file)]):
        with pytest.raises(SystemExit):
            main([*show, *more])
    monkeypatch.delenv("TIDE_CACHE_DIR")
    with pytest.raises(SystemExit):
        main([*show, "--config", str(file)])
    assert seen == [tmp_path / "variable", tmp_path / "variable", tmp_path / "named"], capsys.readouterr().err


def test_damage_in_the_reservoir_is_found_and_removed(state: Path, spool, answer) -> None:
    reservoir = Reservoir(state / "spool" / RESERVOIR_FOLDER, 2**20, seed=0)
    with closing(SpoolReader.open(state / "spool")) as reader:
        assert all(reservoir.offer(reader.read(info)) for info in reader.samples())
    assert answer(state, "verify")["kept"] == 4
    first, second = (kept.path for kept in reservoir.samples()[:2])
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    second.write_bytes(b"garbage")
    found = spool(state, "verify", "--json")
    assert found.returncode == 1
    names = sorted([first.name, second.name])
    assert json.loads(found.stdout)["good"] == 4
    assert (json.loads(found.stdout)["kept"], json.loads(found.stdout)["kept_damaged"]) == (2, names)
    assert "tide spool repair" in found.stderr
    assert answer(state, "repair")["kept_damaged"] == names
    again = spool(state, "verify")
    assert (again.returncode, again.stderr) == (0, "")
    assert "kept for replay: 2 samples good, 0 damaged" in again.stdout


def test_damage_is_found_and_repaired(state: Path, spool, answer) -> None:
    spoil(state, last_page(state, 3))
    found = spool(state, "verify", "--json")
    assert found.returncode == 1
    assert json.loads(found.stdout) == {"good": 3, "damaged": [3], "overwritten": 0, "malformed": 0} | KEPT
    assert "tide spool repair" in found.stderr
    (state / "spool" / "index.db").write_bytes(b"garbage" * 900)
    lost = spool(state, "stat")
    assert lost.returncode == 1
    assert "tide spool repair" in lost.stderr
    done = answer(state, "repair")
    assert done == {
        "index": "unreadable",
        "samples": 3,
        "tokens": 26,
        "added": 4,
        "removed": 0,
        "damaged": [3],
        "kept_damaged": [],
    }
    assert spool(state, "verify").returncode == 0
    assert "the index was intact" in spool(state, "repair").stdout


def last_page(state: Path, sample: int) -> int:
    """The last page of a sample, whose first row is one of its rows."""
    with closing(SpoolReader.open(state / "spool")) as reader:
        return next(info.pages[-1] for info in reader.samples() if info.id == sample)


def test_what_the_ring_has_given_up_is_left_out_in_words(state: Path, tmp_path: Path, spool, answer) -> None:
    ring = Ring.open(state / "spool", writable=True)
    last = ring.table["owner"].tolist().index(2)
    ring.table["owner"][last] = ring.table["generation"][last] = 0  # and its writer was killed just then
    ring.close()
    assert (answer(state, "stat")["samples"], answer(state, "verify")["good"]) == (3, 3)
    assert [row["id"] for row in answer(state, "ls")] == [4, 3, 1]
    words = ["tide: left out: 1 sample that only the index still names", "`tide spool verify --state-dir"]
    for command in (["stat"], ["ls"], ["export", tmp_path / "out"]):
        said = spool(state, *command).stderr
        assert words[0] in said
        assert words[1] in said
        assert "overwritten" not in said
    assert "there is no sample 2" in spool(state, "show", 2).stderr


def test_an_export_takes_the_filters_of_a_listing(state: Path, tmp_path: Path, spool, answer) -> None:
    for place, chosen in enumerate((["--draft", "1"], ["--min-tokens", "9"], ["--since", "1h"])):
        listed = len(answer(state, "ls", *chosen))
        assert answer(state, "export", tmp_path / f"out{place}", *chosen)["samples"] == listed > 0
    refused = spool(state, "export", tmp_path / "none", "--domain", "nobody's")
    assert (refused.returncode, "no such sample" in refused.stderr) == (1, True)


def test_no_export_into_the_appliances_own_folder(state: Path, tmp_path: Path, spool) -> None:
    (tmp_path / "link").symlink_to(state)
    for folder in (state, state / "spool" / "out", state / "out", tmp_path / "link" / "out"):
        refused = spool(state, "export", folder)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 2)
        assert "own folder" in refused.stderr
    assert sorted(path.name for path in state.iterdir()) == ["spool"]


def test_export_and_import_into_a_new_spool(state: Path, tmp_path: Path, spool, answer) -> None:
    done = answer(state, "export", tmp_path / "out", "--min-tokens", 8)
    assert (done["samples"], done["tokens"]) == (3, 27)
    other = tmp_path / "other"
    taken = answer(other, "import", tmp_path / "out", "--spool-size", "64KiB")
    assert taken == {"samples": 3, "tokens": 27, "known": 0, "dropped": 0}
    assert (other / "spool" / "ring.bin").stat().st_size <= 64 * 1024
    assert [row["tokens"] for row in answer(other, "ls")] == [8, 9, 10]
    assert "0 tokens imported; 3 were already there" in spool(other, "import", tmp_path / "out").stdout
    assert answer(other, "verify")["good"] == 3


def test_an_import_says_that_a_spool_keeps_its_size(
    state: Path, tmp_path: Path, spool, answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(state, "export", tmp_path / "out")
    size = Ring.open(state / "spool").size_bytes
    assert "no effect" not in spool(state, "import", tmp_path / "out", "--spool-size", size).stderr
    folder = state / "spool"
    words = f"has no effect: the spool in {folder} keeps its {size / 1024:.1f} KiB; for another size stop TIDE"
    assert f"tide: --spool-size {words}" in spool(state, "import", tmp_path / "out", "--spool-size", "1GiB").stderr
    settings = tmp_path / "tide.toml"
    settings.write_text('spool_size = "3GiB"')
    monkeypatch.setenv("TIDE_CONFIG", str(settings))
    assert f"tide: spool_size in {settings} {words}" in spool(state, "import", tmp_path / "out").stderr
    monkeypatch.setenv("TIDE_SPOOL_SIZE", "2GiB")
    assert f"tide: TIDE_SPOOL_SIZE {words}" in spool(state, "import", tmp_path / "out").stderr
    assert f"tide: --spool-size {words}" in spool(state, "import", tmp_path / "out", "--spool-size", "1GiB").stderr


@pytest.mark.parametrize("spoilt", ["file", "size", "disk"])
def test_an_import_that_is_refused_leaves_no_folder(
    state: Path, tmp_path: Path, spool, answer, monkeypatch: pytest.MonkeyPatch, spoilt: str
) -> None:
    answer(state, "export", tmp_path / "out")
    if spoilt == "file":
        next((tmp_path / "out").rglob("*.ckpt")).write_bytes(b"x")
    if spoilt == "disk":
        monkeypatch.setattr("tide_cli.spool.ring._DISK_RESERVE", 2**60)
    other = tmp_path / "made" / "for" / "it"
    for place in (other, tmp_path):  # neither there yet, nor TIDE's
        before = sorted(tmp_path.rglob("*"))
        done = spool(place, "import", tmp_path / "out", "--spool-size", "1KiB" if spoilt == "size" else "64KiB")
        assert (done.returncode, done.stdout) == (1, "")
        assert sorted(tmp_path.rglob("*")) == before


def test_an_export_that_fails_leaves_no_folder(
    state: Path, tmp_path: Path, spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    monkeypatch.setattr("tide_cli.spool.export.row_bytes", lambda hidden: 2**60)
    assert spool(state, "export", tmp_path / "made" / "for" / "it").returncode == 1
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["stat"], 1, "there is no spool"),
        (["ls"], 1, "there is no spool"),
        (["show", "1"], 1, "there is no spool"),
        (["verify"], 1, "there is no spool"),
        (["repair"], 1, "there is no spool"),
        (["erase", "5", "--yes"], 1, "there is no spool"),
        (["export", "/tmp/x"], 1, "there is no spool"),
        (["import", "/no/such/folder"], 1, "is no export"),
        (["ls", "--since", "soon"], 2, "'soon' is not an age"),
        (["ls", "--draft", "seven"], 2, "seven"),
        (["ls", "--split", "both"], 2, "both"),
        (["show", "one"], 2, "whole number"),
        (["import", "x", "--spool-size", "much"], 2, "much"),
    ],
)
def test_refusals_are_short_and_change_nothing(
    tmp_path: Path, arguments: list[str], code: int, words: str, spool
) -> None:
    done = spool(tmp_path / "state", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""
    assert not (tmp_path / "state").exists()


def test_a_sample_that_is_not_there(state: Path, spool) -> None:
    done = spool(state, "show", 9)
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "tide: there is no sample 9")


def test_looking_imports_no_torch(state: Path) -> None:
    code = f"""
import sys
from tide_cli.cli import main
for arguments in (["stat"], ["ls"], ["show", "1"]):
    try:
        main(["spool", *arguments, "--state-dir", {str(state)!r}])
    except SystemExit as end:
        assert end.code == 0
print([name for name in ("torch", "transformers", "sglang") if name in sys.modules], file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["export", "OUT", "--newest", "9" * 25], ["show", "--", "-" + "9" * 25]])
def test_numbers_that_no_index_takes_are_wrong_usage(state: Path, tmp_path: Path, spool, arguments: list[str]) -> None:
    refused = spool(state, *(str(tmp_path / "out") if argument == "OUT" else argument for argument in arguments))
    assert refused.returncode == 2
    assert "it takes numbers" in refused.stderr


def test_two_commands_that_change_the_spool(state: Path, spool, monkeypatch: pytest.MonkeyPatch) -> None:
    from tide_cli.spool import upkeep

    met, repair = [], upkeep.repair

    def beside(*arguments: object) -> object:
        met.append(spool(state, "repair"))
        return repair(*arguments)

    monkeypatch.setattr(upkeep, "repair", beside)
    assert spool(state, "repair").returncode == 0
    assert met[0].returncode == 1
    assert f"`tide spool repair --state-dir {state}` is at work on" in met[0].stderr
    assert "try again when it is done" in met[0].stderr


def test_a_label_that_is_no_text_is_wrong_usage(state: Path, tmp_path: Path, spool) -> None:
    for command in (["ls"], ["export", tmp_path / "out"]):
        done = spool(state, *command, "--domain", os.fsdecode(b"\xff"))
        assert (done.returncode, done.stdout) == (2, "")
        assert "no text" in done.stderr


def test_a_damaged_file_of_any_name_is_removed_and_spelt_out(state: Path, spool) -> None:
    folder = state / "spool" / RESERVOIR_FOLDER
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\x1b.safetensors")).write_bytes(b"x")
    done = spool(state, "repair")
    assert (done.returncode, done.stderr) == (0, "")
    assert "removed: \\udcff\\x1b.safetensors\n" in done.stdout
    assert not list(folder.iterdir())
