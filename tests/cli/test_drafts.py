"""`tide drafts …` beside a running appliance and without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import ROOT, tide
from safetensors.torch import load_file, save_file
from scripted import publish
from scripted_process import ScriptedAppliance

from tide_cli.cli import main
from tide_cli.cli.draft_store import gc
from tide_cli.drafts.checks import draft_shapes
from tide_cli.drafts.describe import VersionRows
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocab_map_hash
from tide_cli.errors import TideError
from tide_cli.supervisor.journal import Journal, read_served

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "draft_vocab_size": 12,
}


def eagle3(folder: Path, seed: int, d2t: torch.Tensor | None = None) -> Path:
    """A draft of random weights."""
    folder.mkdir()
    chance = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(*size, generator=chance) for name, size in draft_shapes(CONFIG).items()}
    tensors |= {
        "d2t": torch.arange(12) if d2t is None else d2t,
    }
    tensors["t2d"] = torch.zeros(32, dtype=torch.bool)
    tensors["t2d"][tensors["d2t"] + torch.arange(12)] = True
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with v0000 < v0001, both real drafts."""
    store = DraftStore(tmp_path / "state" / "drafts")
    for parent in (None, 0):
        store.publish(
            eagle3(tmp_path / f"made{parent}", seed=1 if parent is None else 2),
            parent=parent,
            target="tiny",
            target_revision="r1",
            vocab_map_hash=vocab_map_hash(torch.arange(12)),
            samples=3,
            tokens=70,
            gate=None if parent is None else {"gain": 0.25, "reason": "gains"},
        )
    return tmp_path / "state"


def read(*arguments: object) -> object:
    answer = tide(*arguments, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_show_and_diff(state: Path) -> None:
    where = ("--state-dir", state)
    shown = read("drafts", "show", "v0001", *where)
    assert (shown["version"], shown["lineage"], shown["served"], shown["tokens"]) == ("v0001", ["v0000"], False, 70)
    text = tide("drafts", "show", "1", *where).stdout
    assert "descends from      v0000" in text
    assert "70 tokens, 3 samples, each pass counted" in text
    assert "gate: gain         0.25" in text
    assert "12 of the target's 32 tokens" in text
    compared = read("drafts", "diff", "0", "1", *where)
    assert compared["same_vocab_map"] is True
    assert compared["tensors"]["d2t"] == 0 < compared["tensors"]["fc.weight"]
    text = tide("drafts", "diff", "0", "1", *where).stdout
    assert text.splitlines()[0].split() == ["v0000", "v0001", "change"]
    assert "vocabulary map" in text


def test_out_and_in_again(tmp_path: Path, state: Path) -> None:
    where = ("--state-dir", state)
    out = tmp_path / "out"
    assert tide("drafts", "export", "1", out, *where).returncode == 0
    refused = tide("drafts", "export", "1", out, *where)
    assert (refused.returncode, "not an empty folder" in refused.stderr) == (2, True)
    refused = tide("drafts", "export", "1", state / "drafts" / "v0009", *where)
    assert (refused.returncode, "own folder" in refused.stderr) == (2, True)
    imported = tide("drafts", "import", out, *where)
    assert (imported.returncode, imported.stdout) == (0, "v0002\n")
    said = imported.stderr.splitlines()
    assert said[0] == "tide: its weights are those of v0001"
    assert said[1] == f"tide: it is not served: `tide drafts use --state-dir {state} v0002` serves it"
    shown = read("drafts", "show", "2", *where)
    assert (shown["lineage"], shown["gate"], shown["served"], shown["target"]) == ([], None, False, "tiny")
    assert shown["files"] == read("drafts", "show", "1", *where)["files"]

    tide("drafts", "use", "1", *where)
    other = eagle3(tmp_path / "other", 5, d2t=torch.arange(12) + 1)  # another vocabulary is no hindrance
    imported = tide("drafts", "import", other, "--json", *where)
    assert json.loads(imported.stdout) == {"version": "v0003", "swappable": True}
    tensors = load_file(other / "model.safetensors")
    save_file(tensors | {"fc.weight": tensors["fc.weight"].bfloat16()}, other / "model.safetensors")
    imported = tide("drafts", "import", other, "--json", *where)
    assert json.loads(imported.stdout) == {"version": "v0004", "swappable": False}
    said = imported.stderr.splitlines()
    assert said[-2:] == [
        "tide: a running engine cannot take it in the place of v0001: the dtype of fc.weight is bfloat16, not float32",
        f"      serve it with `tide down --state-dir {state}`, `tide drafts use --state-dir {state} v0004`, "
        f"`tide up --state-dir {state}`",
    ]
    (other / "config.json").write_text(json.dumps(CONFIG | {"rms_norm_eps": 1e-5}))
    save_file(tensors, other / "model.safetensors")
    imported = tide("drafts", "import", other, *where)
    assert "of v0001: rms_norm_eps in config.json is 1e-05, not None" in imported.stderr
    (other / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 2}))
    refused = tide("drafts", "import", other, *where)
    assert (refused.returncode, "num_hidden_layers is 2" in refused.stderr) == (1, True)
    assert f"`tide drafts import --state-dir {state} DIR` takes another one" in refused.stderr.splitlines()[1]
    (other / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": 4}))
    refused = tide("drafts", "import", other, *where)
    assert (refused.returncode, "does not belong to tiny" in refused.stderr) == (1, True)
    assert len(refused.stderr.splitlines()) == 2


def test_pins_and_gc(tmp_path: Path, state: Path) -> None:
    where = ("--state-dir", state)
    for parent in range(1, 6):
        publish(state / "drafts", parent, tmp_path / "scratch")
    served(state, 5)  # v0004 is its parent
    tide("drafts", "use", "2", *where)  # v0001 is its parent, v0005 was served before
    assert tide("drafts", "pin", "0", *where).returncode == 0
    plan = read("drafts", "gc", "--keep", "1", "--dry-run", *where)
    assert [row["version"] for row in plan["removed"]] == ["v0003", "v0004"]
    assert plan["kept"] == {
        "v0000": "pinned",
        "v0001": "parent of the served one",
        "v0002": "served",
        "v0005": "served before",
        "v0006": "newest",
    }
    assert plan["dry_run"] is True
    assert len(DraftStore(state / "drafts").versions()) == 7
    shown = tide("drafts", "gc", "--keep", "1", "--dry-run", *where).stdout
    assert "would be removed" in shown
    assert shown.split("\n")[0].split() == ["version", "what"]
    unmarked = next(line for line in tide("drafts", "ls", *where).stdout.splitlines() if line.startswith("v0003"))
    assert unmarked.split()[1] == "-"

    tide("drafts", "unpin", "0", *where)
    assert {row["version"] for row in read("drafts", "ls", *where) if row["pinned"]} == set()
    done = read("drafts", "gc", "--keep", "6", *where)
    assert [row["version"] for row in done["removed"]] == ["v0003"]
    assert (done["kept"]["v0000"], done["kept"]["v0004"]) == ("the first", "recent")
    versions = ["v0000", "v0001", "v0002", "v0004", "v0005", "v0006"]
    assert [row["version"] for row in read("drafts", "ls", *where)] == versions
    assert read("drafts", "gc", "--keep", "6", *where)["removed"] == []


def test_gc_removes_nothing_that_a_running_appliance_is_about_to_serve(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for parent in range(1, 4):
        publish(state / "drafts", parent, tmp_path / "scratch")
    said: dict[str, object] = {"in_use": [2]}
    monkeypatch.setattr("tide_cli.cli.draft_store.ask", lambda *_: {"drafts": said})
    gc(keep=1, state_dir=state, json=True)
    done = json.loads(capsys.readouterr().out)
    assert ([row["version"] for row in done["removed"]], done["kept"]["v0002"]) == (["v0001", "v0003"], "in use")
    said["in_use"] = None
    with pytest.raises(TideError, match="nothing was removed"):
        gc(keep=1, state_dir=state)


def test_gc_keeps_everything_where_the_way_back_is_not_known(tmp_path: Path, state: Path) -> None:
    where = ("--state-dir", state)
    publish(state / "drafts", 1, tmp_path / "scratch")
    tide("drafts", "use", "1", *where)
    (state / "drafts" / "v0001" / "manifest.json").chmod(0o600)
    (state / "drafts" / "v0001" / "manifest.json").write_text("{")
    for more in ((), ("--dry-run",)):
        refused = tide("drafts", "gc", "--keep", "1", *more, *where)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 2)
        assert "nothing was removed" in refused.stderr
    assert DraftStore(state / "drafts").versions() == [0, 1, 2]


ODD = [
    {"parent": "x"},
    {"parent": [1]},
    {"parent": -1},
    {"created": "x"},
    {"created": 1e300},
    {"created": None},
    {"tokens": 1.5},
    {"samples": True},
    {"gate": [1]},
    {"gate": {"gain": "x"}},
    {"gate": {"candidate_al": float("nan")}},
    {"target": 1},
    {"files": {"model.safetensors": 1}},
]


def test_an_odd_manifest_is_a_row_with_an_error(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = state / "drafts" / "v0001" / "manifest.json"
    path.chmod(0o600)
    right = json.loads(path.read_text())
    contents = [json.dumps(right | odd) for odd in ODD] + ["[" * 100_000, "[1]", '{"files": 1}']
    for content in contents:
        path.write_text(content)
        for how in ((), ("--json",)):
            with pytest.raises(SystemExit) as end:
                main(["drafts", "ls", "--state-dir", str(state), *how])
            assert end.value.code == 0, content
        rows = json.loads(capsys.readouterr().out.split("\n", 3)[3])
        assert [row["version"] for row in rows] == ["v0000", "v0001"]
        assert [bool(row["error"]) for row in rows] == [False, True], content
        assert VersionRows(DraftStore(state / "drafts")).newest()[0]["version"] == 0


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"domains": {"a": "x", "b": 0.5}}, "a x, b +0.500"),
        ({"domains": {"a": None}}, "a None"),
        ({"domains": {"a": [1]}}, "a [1]"),
        ({"reason": {"x": {"y": 1}}, "why": {"x": {"y": 1}}}, "x {'y': 1}"),
    ],
)
def test_an_odd_figure_of_a_gate_is_shown_as_it_stands(
    state: Path, capsys: pytest.CaptureFixture[str], gate: dict, words: str
) -> None:
    path = state / "drafts" / "v0001" / "manifest.json"
    path.chmod(0o600)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"gate": gate}))
    for how in (("show", "1"), ("diff", "0", "1")):
        with pytest.raises(SystemExit) as end:
            main(["drafts", *how, "--state-dir", str(state)])
        shown = capsys.readouterr()
        assert (end.value.code, words in shown.out) == (0, True), shown


def served(state: Path, version: int) -> None:
    """What an appliance writes down whose engine has come up with this version."""
    journal = Journal(state / "tide.db")
    journal.serve(version)
    journal.note("ready", "the engine is ready", {"version": version})
    journal.close()


def test_back_and_forth_without_an_appliance(state: Path) -> None:
    where = ("--state-dir", state)
    refused = tide("drafts", "rollback", *where)
    assert (refused.returncode, "nothing was ever served" in refused.stderr) == (1, True)
    served(state, 0)
    refused = tide("drafts", "rollback", *where)
    assert (refused.returncode, "none was served before v0000" in refused.stderr) == (1, True)
    tide("drafts", "use", "1", *where)
    assert "v0000 will be served" in tide("drafts", "rollback", *where).stdout
    assert tide("drafts", "rollback", *where).returncode == 1  # v0001 was never served
    served(state, 1)
    assert "v0000 will be served" in tide("drafts", "rollback", *where).stdout
    back = read("drafts", "rollback", *where)
    assert back == {"version": "v0001", "now": False, "text": "v0001 will be served from the next `tide up` on"}
    DraftStore(state / "drafts").remove(0)
    refused = tide("drafts", "rollback", *where)
    assert (refused.returncode, "v0000 was removed" in refused.stderr) == (1, True)


def test_a_version_marked_bad_is_served_on_demand_and_its_mark_is_said(state: Path) -> None:
    where = ("--state-dir", state)
    DraftStore(state / "drafts").mark_bad(1, "v0001 is taken back, v0000 returns: it fell short")
    for done in (tide("drafts", "use", "1", *where), tide("drafts", "use", "1", "--json", *where)):
        assert (done.returncode, "v0001" in done.stdout) == (0, True)
        assert "v0001 is marked bad: v0001 is taken back, v0000 returns: it fell short" in done.stderr
    served(state, 1)
    served(state, 0)
    assert tide("drafts", "use", "0", *where).stderr == ""


def test_a_rollback_does_not_lead_back_to_what_was_taken_back(state: Path) -> None:
    where = ("--state-dir", state)
    DraftStore(state / "drafts").mark_bad(1, "it fell short")
    served(state, 1)
    served(state, 0)
    refused = tide("drafts", "rollback", *where)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "v0001, which was served before, is marked bad: it fell short" in refused.stderr
    assert "`tide drafts use " in refused.stderr
    assert " serves it all the same" in refused.stderr
    assert read_served(state / "tide.db") == 0


def test_beside_a_running_appliance(appliance: ScriptedAppliance) -> None:
    appliance.up()
    where = ("--state-dir", appliance.paths.state)
    for parent in (0, 1, 2, 3):
        publish(appliance.paths.drafts, parent, appliance.folder / "scratch")
    assert tide("drafts", "use", "1", *where).stdout == "v0001 is served\n"
    assert tide("drafts", "use", "3", *where).stdout == "v0003 is served\n"
    assert tide("drafts", "rollback", *where).stdout == "v0001 is served\n"
    assert appliance.status()["drafts"].items() >= {"served": 1, "in_use": [1, 3]}.items()
    removed = read("drafts", "gc", "--keep", "1", *where)["removed"]
    assert [row["version"] for row in removed] == ["v0002"]  # v0000 is a parent, v0003 the way back, v0004 the newest
    assert read("drafts", "rollback", *where) == {"version": "v0003", "now": True, "text": "v0003 is served"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "7"], 1, "no draft v0007"),
        (["diff", "1", "7"], 1, "no draft v0007"),
        (["pin", "7"], 1, "no draft v0007"),
        (["unpin", "x"], 2, "not a draft version"),
        (["export", "7", "nowhere"], 1, "no draft v0007"),
        (["import", "/no/such/folder"], 2, "there is no such folder"),
        (["gc", "--keep", "0"], 2, "--keep"),
    ],
)
def test_refusals(state: Path, arguments: list[str], code: int, words: str) -> None:
    answer = tide("drafts", *arguments, "--state-dir", state)
    assert (answer.returncode, words in answer.stderr, answer.stdout) == (code, True, "")
    assert len(answer.stderr.splitlines()) <= 2


def test_without_a_store(tmp_path: Path) -> None:
    for arguments in (["show", "0"], ["pin", "0"], ["rollback"], ["import", str(tmp_path)]):
        answer = tide("drafts", *arguments, "--state-dir", tmp_path / "none")
        assert answer.returncode == 1, arguments
        assert len(answer.stderr.splitlines()) == 2
    assert read("drafts", "gc", "--state-dir", tmp_path / "none") == {"dry_run": False, "removed": [], "kept": {}}
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "arguments", [["ls"], ["show", "1"], ["pin", "1"], ["export", "1", "out"], ["gc"], ["rollback"]]
)
def test_what_reads_no_tensor_imports_no_torch(tmp_path: Path, state: Path, arguments: list[str]) -> None:
    code = f"""
import sys
from tide_cli.cli import main
from tide_cli.cli.draft_store import gc
try:
    main(["drafts", *{arguments!r}, "--state-dir", {str(state)!r}])
except SystemExit:
    print([name for name in ("torch", "numpy", "fastapi", "safetensors") if name in sys.modules], file=sys.stderr)
"""
    environment = {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert answer.stderr.splitlines()[-1] == "[]"
