"""What a long command tells on stderr."""

from __future__ import annotations

import pytest

from tide_cli.cli.progress import narrated


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("tide_cli.cli.progress.time.monotonic", lambda: now)
    with narrated("busy") as progress:
        assert capsys.readouterr().err == ""  # what was asked for may still be refused
        progress.say("it begins")
        progress.tick(10, 100)
        now = 1300.0
        progress.tick(40, 100)  # 30 in 300 s, 60 are left
        progress.say("a part is done [not markup]")
    out, err = capsys.readouterr()
    assert out == ""
    warning, first, second = err.splitlines()
    assert warning == "tide: busy"
    assert first.endswith("it begins")
    assert second.endswith("a part is done [not markup] (40%, about 10 min left)")
