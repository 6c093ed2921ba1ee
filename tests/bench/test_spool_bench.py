"""`tide bench spool` on rows so small that it takes a moment; no figure is judged."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from test_page import check
from test_scratch import kill_in

from tide_cli.bench.report import filesystem_of
from tide_cli.bench.spool import SpoolBench
from tide_cli.bench.spool_readers import _reading
from tide_cli.bench.spool_stores import MemcpyStore, SpoolStore
from tide_cli.bench.spool_table import as_table
from tide_cli.bench.spool_traffic import ANSWER, PROMPT, REQUESTS, make_traffic
from tide_cli.cli import main
from tide_cli.errors import TideError, UsageError

HIDDEN, SIZE = 32, 8 * 2**20


def bench(folder: Path, **changes: object) -> SpoolBench:
    return SpoolBench(**{"seconds": 0, "size": SIZE, "hidden": [HIDDEN], "rate": 1e6, "folder": folder} | changes)


def test_the_traffic_is_that_of_whole_requests() -> None:
    traffic = make_traffic(HIDDEN, SIZE)
    assert 0 < traffic.state_bytes <= SIZE
    ends: dict[str, int] = {}
    finished = []
    for forward in traffic.forwards:
        assert len(forward.puts) <= REQUESTS
        for put in forward.puts:
            assert put.start == ends.get(put.request.rid, 0)
            assert put.count == PROMPT if put.start == 0 else 1 <= put.count <= 4
            assert forward.pool.start <= put.offset
            assert put.offset + put.count <= forward.pool.stop <= len(traffic.aux) == len(traffic.final)
            ends[put.request.rid] = put.start + put.count
        for request in forward.finished:
            assert ends[request.rid] == request.rows == PROMPT + ANSWER
            finished.append(request.rid)
    assert sorted(finished) == sorted(ends)
    assert len(make_traffic(HIDDEN, 0).forwards) > REQUESTS  # one group at least


def test_the_spool_keeps_what_the_traffic_says(tmp_path: Path) -> None:
    traffic = make_traffic(HIDDEN, SIZE // 4)
    store = SpoolStore(tmp_path / "spool", HIDDEN, SIZE)
    parts = store.write(traffic)
    assert parts["write"].size == parts["prefill"].size + parts["decode"].size == traffic.state_bytes
    assert store.read().size == traffic.state_bytes
    (newest, *_) = store._reader.samples()
    sample = store._reader.read(newest)
    last = [put for forward in traffic.forwards for put in forward.puts][-1]
    assert torch.equal(sample.final[-last.count :], traffic.final[last.offset : last.offset + last.count])
    store.write(traffic)
    assert store.read().size == 2 * traffic.state_bytes
    pages = [page for info in store._reader.samples() for page in info.pages]
    assert len(pages) == len(set(pages))  # the second pass is not taken for the first
    store.close()


def test_memcpy_writes_the_same_rows(tmp_path: Path) -> None:
    traffic = make_traffic(HIDDEN, 0)
    store = MemcpyStore(tmp_path / "memcpy", 2 * traffic.state_bytes)
    assert store.write(traffic)["write"].size == traffic.state_bytes == store._end
    last = [put for forward in traffic.forwards for put in forward.puts][-1]
    rows = traffic.final[last.offset : last.offset + last.count].contiguous().view(torch.uint8).numpy()
    assert store._bytes[store._end - rows.size : store._end].tobytes() == rows.tobytes()
    store.close()


@pytest.mark.skipif(find_spec("lmdb") is None, reason="lmdb is not installed")
@pytest.mark.parametrize("writemap", [False, True])
def test_lmdb_keeps_the_newest_of_the_same_rows(tmp_path: Path, writemap: bool) -> None:
    from tide_cli.bench.spool_stores import LmdbStore

    traffic = make_traffic(HIDDEN, SIZE // 2)
    store = LmdbStore(tmp_path / "lmdb", SIZE, writemap=writemap)
    for _ in range(5):
        store.write(traffic)
    assert SIZE // 2 < store.read().size <= SIZE
    keys, _ = store._kept[-1]
    request = [request for forward in traffic.forwards for request in forward.finished][-1]
    put = [put for forward in traffic.forwards for put in forward.puts if put.request == request][-1]
    with store._env.begin() as transaction:
        assert transaction.stat()["entries"] == sum(len(keys) for keys, _ in store._kept)
        final = traffic.final[put.offset : put.offset + put.count].contiguous().view(torch.uint8).numpy()
        assert transaction.get(keys[-1]) == final.tobytes()
    store.close()


def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as end:
        main(["bench", "spool", "--json", "--hidden", "32", "--size", "8MiB", "--seconds", "1", "--rate", "1e6",
              "--folder", str(tmp_path), "--html", str(page), "--guard", "32:row_bytes<=100"])  # fmt: skip
    printed = capsys.readouterr()
    assert end.value.code == 1
    assert f"32:row_bytes<=100 is not met by hidden size 32: {8 * HIDDEN + 12}" in printed.err
    check(page.read_text())
    assert f"rows of hidden size 32, {8 * HIDDEN + 12} bytes each" in page.read_text()
    page.unlink()
    assert list(tmp_path.iterdir()) == []
    report = json.loads(printed.out)
    assert {"tide", "packages", "cpu", "cores", "memory", "load", "load_after"} <= report["environment"].keys()
    assert report["spool"]["options"] == {"seconds": 1, "size": SIZE, "rate": 1e6}
    (result,) = report["spool"]["by_hidden_size"]
    for name in ("ingest_mb_s", "memcpy_mb_s", "lmdb_mb_s", "row_bytes", "hidden_size"):
        assert report["spool"][name] == result[name]
    assert (result["hidden_size"], result["row_bytes"]) == (HIDDEN, 8 * HIDDEN + 12)
    assert result["rounds"] >= 3
    for name in ("ingest_mb_s", "ingest_decode_mb_s", "memcpy_mb_s", "spool_read_mb_s", "memcpy_cpu_s_per_gib"):
        low, high = result["spread"][name]
        assert 0 < low <= result[name] <= high
    for name in ("lmdb_mb_s", "lmdb_writemap_mb_s", "ingest_to_lmdb"):
        assert (result[name] is None) == (find_spec("lmdb") is None)
    assert result["paced"]["tokens_s"] > 0
    assert list(result["writer_call_ms"]) == ["absent", "slow", "stopped"]
    assert all(0 < calls["p50"] <= calls["p99"] for calls in result["writer_call_ms"].values())


def test_a_stopped_reader_is_stopped_in_the_middle_of_reading(tmp_path: Path) -> None:
    store = SpoolStore(tmp_path / "spool", HIDDEN, SIZE)
    store.write(make_traffic(HIDDEN, 0))
    with _reading(store.folder, "stopped") as process:
        assert "State:\tT (stopped)" in Path(f"/proc/{process.pid}/status").read_text()
        assert process.poll() is None
        index = sqlite3.connect(store.folder / "index.db")
        store.write(make_traffic(HIDDEN, 0, seed=1))
        _, journal, done = index.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert done < journal  # its transaction is in the way
        index.close()
    assert process.returncode == -signal.SIGKILL
    store.close()


def test_without_lmdb_the_table_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tide_cli.bench.spool.has_lmdb", lambda: False)
    (result,) = bench(tmp_path).run(lambda done, total: None)
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(as_table([result]))
    text = console.export_text()
    assert "pip install --group bench" in text
    assert re.search(r"share of one core +[\d.]+ %\n", re.sub(r" +\n", "\n", text))
    assert f"{result['row_bytes']} bytes a token" in text
    assert result["lmdb_mb_s"] is result["ingest_to_lmdb_writemap"] is None


def test_what_a_killed_run_left_takes_no_room_from_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_in(tmp_path)

    def free(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=0 if list(folder.iterdir()) else 2**40)

    monkeypatch.setattr("tide_cli.bench.spool.shutil.disk_usage", free)
    bench(tmp_path).check()
    assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too small"):
        bench(tmp_path, size=2**20).run(print)
    with pytest.raises(UsageError, match="not a hidden size"):
        bench(tmp_path, hidden=[30]).run(print)
    with pytest.raises(UsageError, match="not a folder"):
        bench(tmp_path / "none").run(print)
    with pytest.raises(TideError, match="too little room"):
        bench(tmp_path, size=2**50).run(print)
    with pytest.raises(SystemExit) as end:
        main(["bench", "spool", "--size", "much"])
    assert end.value.code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = ["bench", "spool", "--hidden", HIDDEN, "--size", "8MiB", "--seconds", 300, "--folder", tmp_path]
    with subprocess.Popen(
        [sys.executable, "-m", "tide_cli", *map(str, command)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while not list(tmp_path.glob("*/*/memcpy/file.bin")):
                assert process.poll() is None, process.stderr.read()
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "tide: interrupted: nothing is left behind"
    assert list(tmp_path.iterdir()) == []


def test_the_file_system_of_a_folder() -> None:
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(Path(tempfile.gettempdir())) != "?"
