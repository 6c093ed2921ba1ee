"""The notebook of a long measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from tide_cli.bench.records import Records
from tide_cli.errors import UsageError

WHAT = {"bench": "adapt", "order": ("a", "b"), "rounds": 3}


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    records = Records(tmp_path / "run", WHAT)
    records.add("pass", piece=0, tokens=5)
    records.add("static", version=1)
    records.add("pass", piece=1, tokens=7)
    again = Records(tmp_path / "run", WHAT)
    assert again.of("pass") == records.of("pass") == [{"piece": 0, "tokens": 5}, {"piece": 1, "tokens": 7}]
    assert again.of("final") == []


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_line_cut_short_is_forgotten(tmp_path: Path, cut: int) -> None:
    records = Records(tmp_path, WHAT)
    records.add("pass", piece=0)
    records.add("pass", piece=1)
    file = tmp_path / "records.jsonl"
    file.write_text(file.read_text()[:-cut])
    again = Records(tmp_path, WHAT)
    kept = again.of("pass")
    assert kept == [{"piece": 0}] if cut < 30 else kept == []
    again.add("pass", piece=7)
    assert Records(tmp_path, WHAT).of("pass") == [*kept, {"piece": 7}]


def test_a_folder_belongs_to_one_measurement(tmp_path: Path) -> None:
    Records(tmp_path, WHAT)
    with pytest.raises(UsageError) as refused:
        Records(tmp_path, {**WHAT, "rounds": 4})
    assert "it differs in rounds" in refused.value.lines()[0]
    (tmp_path / "records.jsonl").write_text("no JSON\n")
    with pytest.raises(UsageError, match="is damaged"):
        Records(tmp_path, WHAT)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot use the folder"):
        Records(tmp_path / "file", WHAT)
