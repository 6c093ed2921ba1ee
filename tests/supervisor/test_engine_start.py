"""The log of an engine that is starting, read as it grows."""

from __future__ import annotations

from pathlib import Path

from tide_cli.supervisor.engine_start import EngineStart

BEGIN = "[2026-11-29 17:27:02] Load weight begin. avail mem=20.48 GB\n"
END = "[2026-11-29 17:27:03] Load weight end. elapsed=0.95 s\n"


def test_a_growing_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(END)  # of a former start
    start = EngineStart(log, log.stat().st_size)
    assert start.phase()["name"] == "imports"
    with log.open("a") as file:
        file.write(BEGIN[:30])
        file.flush()
        assert start.phase()["name"] == "imports"
        file.write(BEGIN[30:])
        file.flush()
        assert start.phase()["words"] == "loading weights"
    log.write_text(END)  # cut, and written on
    assert start.phase()["name"] == "kv_cache"
    assert list(start.seconds()) == ["imports", "weights", "kv_cache"]


def test_a_line_without_an_end_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"\xff" * 3 * 2**20 + b"\n" + BEGIN.encode())
    start = EngineStart(log, 0)
    for _ in range(4):
        start.phase()
    assert start.phase()["name"] == "weights"


def test_no_log_yet(tmp_path: Path) -> None:
    assert EngineStart(tmp_path / "none", 0).phase()["name"] == "imports"
