"""`tide history` on a state folder whose appliance has ended."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from commands import tide

from tide_cli.cli import main
from tide_cli.paths import Paths
from tide_cli.supervisor.journal import Journal
from tide_cli.telemetry.history import History
from tide_cli.telemetry.load import Interval
from tide_cli.telemetry.rows import FIGURES, Row

SECONDS = 600

Run = Callable[..., str]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Ten minutes in which acceptance rises from 1 to 2 and every second gives 30 tokens."""
    paths = Paths.under(tmp_path, tmp_path)
    journal = Journal(paths.database)
    journal.note("swap", "v0002 is served", {})
    journal.close()
    history = History(paths.history, pytest.fail)
    now = int(time.time())
    for second in range(SECONDS):
        seen = Interval(1.0, 30, 12, 1 + second / SECONDS, {(0.1, 0.2): 1}, {})
        history.add(Row(now - SECONDS + second, seen, 1.0, version=1))
    history.close()
    return tmp_path


@pytest.fixture
def run(state: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Standard output of the command, in this process."""

    def run(*arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            main(["history", *map(str, arguments), "--state-dir", str(state)])
        out, err = capsys.readouterr()
        assert end.value.code == code, err
        return out if code == 0 else err

    return run


def test_data(run: Run) -> None:
    found = json.loads(run("--json"))
    assert found["step"] == 1
    assert SECONDS - 5 <= len(found["rows"]) <= SECONDS
    assert [mark["kind"] for mark in found["marks"]] == ["swap"]
    table = list(csv.DictReader(io.StringIO(run("--csv", "--since", "3d"))))
    assert tuple(table[0]) == FIGURES
    assert [int(row["time"]) % 60 for row in table] == [0] * len(table)
    assert {row["output_tok_s"] for row in table} == {"30.0"}
    assert {row["queued"] for row in table} == {""}
    assert json.loads(run("--json", "--step", 10))["step"] == 10


def test_a_table_of_some_lines_with_what_has_happened(run: Run) -> None:
    header, *lines = run().splitlines()
    assert header.endswith("steps  what happened")
    assert header.startswith("time             accepted  out tok/s  in tok/s  running  queued")
    assert 4 <= len(lines) <= 26
    assert all(" 30.0 " in line and " 195 " in line for line in lines)
    assert lines[-1].endswith("v0002 is served")
    lengths = [float(line.split()[3]) for line in lines]
    assert lengths == sorted(lengths)
    assert lengths[0] < 1.3
    assert lengths[-1] > 1.7


def test_a_plot_in_the_terminal(run: Run) -> None:
    title, *lines = run("--plot", "acceptance", "--since", "15m").splitlines()
    assert title == "acceptance length"
    assert len(lines) == 16
    assert max(map(len, lines)) <= 78
    assert lines[0].startswith("2.00│")
    assert lines[-2].startswith("1.00│")
    assert "swap" in lines[-1] or "▲" in lines[-1]
    first = [min((i for i, c in enumerate(line) if 0x2800 < ord(c) < 0x2900), default=0) for line in lines[:-1]]
    drawn = [column for column in first if column]
    assert drawn == sorted(drawn, reverse=True)  # it rises: the higher, the later
    assert run("--plot", "queued") == "no requests queued in this time\n"


@pytest.mark.parametrize(("ending", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_plot_in_a_file(
    run: Run, state: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str, begin: bytes
) -> None:
    pytest.importorskip("matplotlib", reason="group bench")
    file = tmp_path / f"plot.{ending}"
    with pytest.raises(SystemExit):
        main(["history", "--plot", "acceptance", "-o", str(file), "--state-dir", str(state)])
    assert capsys.readouterr() == ("", f"tide: the plot is in {file}\n")
    assert file.read_bytes().startswith(begin)
    if ending == "svg":
        assert "acceptance length" in file.read_text()
    assert "cannot write" in run("--plot", "output", "-o", tmp_path / "nowhere" / f"plot.{ending}", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "--csv"],
        ["--plot", "output", "--json"],
        ["-o", "x.svg"],
        ["--plot", "output", "-o", "x.gif"],
        ["--step", "7"],
        ["--since", "0s"],
        ["--since", "soon"],
        ["--plot", "weather"],
    ],
)
def test_wrong_usage(run: Run, arguments: list[str]) -> None:
    run(*arguments, code=2)


def test_without_a_history_there_is_nothing_to_show(tmp_path: Path) -> None:
    done = tide("history", "--state-dir", tmp_path / "empty")
    assert (done.returncode, done.stdout) == (0, "no history in this time\n")


def test_a_plot_of_nothing_is_no_file(run: Run, tmp_path: Path) -> None:
    assert "is not written: there is no KV cache taken" in run("--plot", "kv", "-o", tmp_path / "p.svg", code=1)
    assert "no KV cache taken" in run("--plot", "kv")
    assert not (tmp_path / "p.svg").exists()


def test_a_history_of_another_version_is_not_taken_for_none(run: Run, state: Path) -> None:
    with closing(sqlite3.connect(state / "history.db")) as connection:
        connection.execute("pragma user_version = 9")
    assert "format 9, written by another version of TIDE" in run(code=1)
