"""A state folder in which something else lies where a file should be: every command says what, and what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "spool"))

from scripted import publish
from spool_traffic import LAYOUT, LONGEST, states

from tide_cli.cli import main
from tide_cli.spool.writer import SpoolWriter
from tide_cli.supervisor.journal import Journal

# Words of the language and of its libraries; a person has no use for them.
INTERNAL = re.compile(
    r"Error\b|NoneType|\[Errno|Traceback|<class|object is|Expecting|codec|unpack|invalid literal|fault in TIDE|\bNone\b"
)
SPOOL = (["spool", "stat"], ["spool", "ls"], ["spool", "verify"], ["spool", "erase", "1", "--yes"], ["spool", "repair"])
DRAFTS = (["drafts", "ls"], ["drafts", "show", "0"], ["drafts", "gc"], ["drafts", "pin", "0"], ["drafts", "use", "0"])
JOURNAL = (["events"], ["drafts", "ls"], ["drafts", "rollback"], ["drafts", "use", "0"])
ENTRIES = {
    "spool": SPOOL,
    "spool/ring.bin": SPOOL,
    "spool/index.db": SPOOL,
    "spool/index.db-journal": SPOOL,
    "spool/writer.lock": SPOOL[3:],
    "spool/reservoir": (SPOOL[0], SPOOL[3]),
    "drafts": DRAFTS,
    "drafts/v0000": DRAFTS,
    "drafts/v0000/manifest.json": DRAFTS,
    "drafts/v0000/config.json": DRAFTS[:3],
    "drafts/v0000/model.safetensors": DRAFTS,
    "drafts/marks.json": DRAFTS[:4],
    "drafts/.lock": DRAFTS[3:4],
    "tide.db": JOURNAL,
    "run": (["down"], ["plan"]),
    "run/children.json": (["down"],),
    "run/training.json": (["spool", "show", "1", "--text"],),
    "logs": (["logs"],),
    "logs/engine.log": (["logs"],),
    "lock": (["down"], ["ps"], SPOOL[4], DRAFTS[4]),
    "control.sock": (["down"], ["ps"], ["train", "now"]),
}
PIPES = (
    "spool/index.db",
    "spool/index.db-journal",
    "tide.db",
    "lock",
    "drafts/v0000/manifest.json",
    "drafts/v0000/config.json",
    "drafts/v0000/model.safetensors",
    "drafts/marks.json",
    "drafts/.lock",
    "run/children.json",
    "run/training.json",
    "logs/engine.log",
    "control.sock",
)
KINDS = ("folder", "empty", "garbage", "json", "broken link", "loop", "missing")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What an appliance leaves behind: two samples, a draft, a journal, a log."""
    root = tmp_path / "state"
    size = LAYOUT.size_for(12)
    writer = SpoolWriter.open(root / "spool", LAYOUT, size, run="r", max_sample_tokens=LONGEST, held_out_share=0.2)
    for seed in (1, 2):
        aux, final = states(seed, 900)
        writer.put_rows(str(seed), 0, aux[:10], final[:10])
        writer.finish(str(seed), list(range(11)), 4, draft_version=0, verify_steps=5, accepted_tokens=7)
    writer.close()
    publish(root / "drafts", None, tmp_path / "made")
    journal = Journal(root / "tide.db")
    journal.note("swap", "one", {"version": 0, "before": None})
    journal.serve(0)
    journal.close()
    for folder, name in (("logs", "engine.log"), ("run", "training.json")):
        (root / folder).mkdir()
        (root / folder / name).write_text("{}")
    return root


def spoil(path: Path, kind: str) -> None:
    """Something else in the place of a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
        (path / "x").touch()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("broken link", "loop"):
        path.symlink_to(path if kind == "loop" else "/no/such/place")
    elif kind != "missing":
        path.write_bytes({"empty": b"", "garbage": bytes(range(256)) * 40, "json": b"[1, null]"}[kind])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Exit code and stderr of a command, whose words are looked through."""

    def run(state: Path, *arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--state-dir", str(state)])
        said = capsys.readouterr().err
        assert end.value.code in (0, 1, 2, 3)
        assert not INTERNAL.search(said), (arguments, said)
        assert len(said.splitlines()) <= 2 or end.value.code == 0, (arguments, said)
        assert said or end.value.code == 0
        return int(end.value.code), said

    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_words_for_people(state: Path, entry: str, kind: str, run: Callable[..., tuple[int, str]]) -> None:
    kept = shutil.copytree(state, state.with_name("kept"))
    for command in ENTRIES[entry]:
        shutil.rmtree(state)
        shutil.copytree(kept, state)
        spoil(state / entry, kind)
        run(state, *command)


@pytest.mark.parametrize("entry", PIPES)
def test_a_pipe_is_not_waited_for(state: Path, entry: str, run: Callable[..., tuple[int, str]]) -> None:
    spoil(state / entry, "pipe")
    for command in ENTRIES[entry]:
        run(state, *command)


def test_a_history_that_is_a_pipe_is_not_waited_for(state: Path, run: Callable[..., tuple[int, str]]) -> None:
    spoil(state / "history.db", "pipe")
    assert run(state, "history")[0] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_repair_helps_where_it_is_named(state: Path, kind: str, run: Callable[..., tuple[int, str]]) -> None:
    spoil(state / "spool" / "index.db", kind)
    code, said = run(state, "spool", "ls")
    assert code == 1
    assert f"`tide spool repair --state-dir {state}`" in said
    assert run(state, "spool", "repair")[0] == 0
    assert run(state, "spool", "ls") == (0, "")


@pytest.mark.parametrize("kind", KINDS[:5])
def test_up_is_not_named_where_it_would_fail(state: Path, kind: str, run: Callable[..., tuple[int, str]]) -> None:
    spoil(state / "spool" / "ring.bin", kind)
    code, said = run(state, "spool", "stat")
    assert code == 1
    assert ("tide up" in said) == (kind in ("missing", "broken link"))


@pytest.mark.parametrize(
    "change",
    [
        *("update events set data = 'x'", "update events set data = x'ff'", "update events set data = '[1]'"),
        *("update events set time = 'noon'", "update events set time = 1e300", "update events set text = x'ff'"),
        "update served set version = 'seven'",
    ],
)
def test_rows_that_make_no_sense(state: Path, change: str, run: Callable[..., tuple[int, str]]) -> None:
    with sqlite3.connect(state / "tide.db") as connection:
        connection.execute(change)
    for command in JOURNAL[:3]:
        run(state, *command)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_folder_that_is_not_tides_keeps_its_mode(
    tmp_path: Path, mode: int, run: Callable[..., tuple[int, str]]
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    for command in (["spool", "erase", "5", "--yes"], ["spool", "repair"], ["spool", "import", str(tmp_path)]):
        assert run(folder, *command)[0] == 1
        assert folder.stat().st_mode & 0o7777 == mode


def test_marks_of_another_kind(state: Path, run: Callable[..., tuple[int, str]]) -> None:
    for content in (
        *('{"pinned": ["x"], "bad": {}}', '{"pinned": 1, "bad": {}}', '{"pinned": [1e400], "bad": {}}'),
        *('{"bad": {}}', "{", '"', "[" * 100_000),
    ):
        (state / "drafts" / "marks.json").write_text(content)
        code, said = run(state, "drafts", "ls")
        assert code == 1
        assert "marks.json" in said


def test_records_of_cycles_that_make_no_sense(state: Path, run: Callable[..., tuple[int, str]]) -> None:
    record = state / "training" / "cycles" / "000001.json"
    record.parent.mkdir(parents=True)
    whole = {"cycle": 1, "created": 1.0, "served": 0, "start": "version", "config": {}}
    for changed in ({"steps": 7}, {"config": [1]}, {"config": {"threads": "\0"}}, {"created": None}, {"gate": 1e400}):
        record.write_text(json.dumps(whole | changed))
        assert run(state, "train", "replay", "1")[0] == 1
    record.write_text("[" * 100_000)
    assert "nested too deeply" in run(state, "train", "replay", "1")[1]


def test_folders_that_lead_nowhere(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str]]
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "leads back to itself" in run(state, "spool", "export", str(loop))[1]
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the folder that it starts from is gone" in run(Path("state"), "spool", "stat")[1]
