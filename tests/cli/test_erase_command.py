"""`tide spool erase`: which samples, asked or not, by itself or through the engine."""

from __future__ import annotations

import json
import os
import pty
import resource
import socketserver
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from commands import ROOT

sys.path.insert(0, str(Path(__file__).parents[1] / "spool"))

from spool_traffic import LAYOUT, LONGEST

from tide_cli.engine.client import EngineClient
from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.spool.erase import Which, read_request
from tide_cli.spool.erase import answer as answer_request
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import Reservoir
from tide_cli.spool.writer import SpoolWriter
from tide_cli.supervisor.control_client import STATUS_VERSION
from tide_cli.supervisor.lock import StateLock

SECRET = 777_000  # the first token id of sample 1; sample 2 has 778_000 …


def open_writer(folder: Path) -> SpoolWriter:
    return SpoolWriter.open(
        folder, LAYOUT, LAYOUT.size_for(12), run="r1", max_sample_tokens=LONGEST, held_out_share=0.25
    )


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Three samples of 10 tokens, the first two of them in the reservoir as well."""
    folder = tmp_path / "state" / "spool"
    writer = open_writer(folder)
    for number in range(3):
        rows = torch.full((10, 4 * LAYOUT.hidden_size), 1.0 + number).bfloat16()
        writer.put_rows("r", 0, rows[:, : 3 * LAYOUT.hidden_size], rows[:, 3 * LAYOUT.hidden_size :])
        ids = [SECRET + 1000 * number + position for position in range(11)]
        assert writer.finish("r", ids, 4, draft_version=0, verify_steps=5, accepted_tokens=7) == number + 1
    writer.close()
    reader = SpoolReader.open(folder)
    reservoir = Reservoir(folder / "reservoir", 2**20, seed=0)
    for info in reader.samples()[1:]:
        assert reservoir.offer(reader.read(info))
    reader.close()
    return tmp_path / "state"


def traces(state: Path, number: int) -> list[str]:
    """Files of the spool in which the sample's token ids still stand."""
    ids = range(SECRET + 1000 * (number - 1), SECRET + 1000 * (number - 1) + 10)
    patterns = [b"".join(token.to_bytes(size, "little") for token in ids) for size in (4, 8)]
    files = [path for path in (state / "spool").rglob("*") if path.is_file()]
    return [path.name for path in files if any(pattern[:32] in path.read_bytes() for pattern in patterns)]


def ids(state: Path) -> list[int]:
    reader = SpoolReader.open(state / "spool")
    try:
        infos = reader.samples()
        assert all(reader.read(info) for info in infos)
        return [info.id for info in infos]
    finally:
        reader.close()


def test_one_sample(state: Path, spool) -> None:
    assert len(traces(state, 1)) == len(traces(state, 2)) == 2  # the ring and the reservoir
    done = spool(state, "erase", 1, "--yes", "--json")
    assert json.loads(done.stdout)["samples"] == json.loads(done.stdout)["reservoir"] == 1
    assert ids(state) == [3, 2]
    assert traces(state, 1) == []
    assert len(traces(state, 2)) == 2
    done = spool(state, "erase", 1, "--yes")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "tide: there is no such sample")


def test_each_of_those_named_is_looked_for_in_the_ring_and_in_the_reservoir(state: Path, spool) -> None:
    with closing(open_writer(state / "spool")) as writer:
        writer.erase(Which(ids=(2,)))
    done = spool(state, "erase", 2, 3, "--yes", "--json")  # in the reservoir alone, in the ring alone
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["samples"], found["reservoir"]) == (1, 1)
    assert list(found) == ["samples", "pages", "kept_shared", "bytes", "reservoir"]
    done = spool(state, "erase", 1, 9, "--yes")
    assert (done.returncode, done.stderr) == (0, "tide: 1 sample of those named is not there\n")


def test_a_file_that_cannot_be_read_is_no_sample_that_was_named(state: Path, spool) -> None:
    (state / "spool" / "reservoir" / "half.safetensors").write_bytes(b"x")
    done = spool(state, "erase", 99, "--yes")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "tide: there is no such sample")


@pytest.mark.parametrize(("which", "left"), [("--all", []), ("--older-than=0s", []), ("--older-than=1h", [3, 2, 1])])
def test_many(state: Path, spool, which: str, left: list[int]) -> None:
    assert spool(state, "erase", which, "-y").returncode == 0
    assert ids(state) == left
    assert all(bool(traces(state, number)) == (number in left) for number in (1, 2, 3))


@contextmanager
def full_disk(limit: int = 4096) -> Iterator[None]:
    """No file grows beyond `limit`, a page, which SQLite's side files do; what is there can be overwritten."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_does_not_hinder_it(state: Path, spool) -> None:
    with full_disk():
        seen, done = spool(state, "stat"), spool(state, "erase", 1, 2, "--yes")
        repaired = spool(state, "repair")
    assert (seen.returncode, "free some space" in seen.stderr) == (1, True)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert done.stdout.startswith("2 samples erased")
    assert traces(state, 1) == traces(state, 2) == []
    assert not (state / "lock").exists()
    assert (repaired.returncode, "free some space" in repaired.stderr) == (1, True)
    assert spool(state, "repair").stdout.startswith("the index was out of step; 0 samples added, 2 removed")
    assert ids(state) == [3]


def test_an_index_that_can_be_opened_and_not_written_does_not_hinder_it(state: Path, spool) -> None:
    held = sqlite3.connect(
        state / "spool" / "index.db"
    )  # SQLite's side files are there, as a killed engine leaves them
    held.execute("select count(*) from sqlite_master").fetchall()
    with closing(held), full_disk():
        done = spool(state, "erase", 1, 2, "--yes")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), done.stderr
    assert done.stdout.startswith("2 samples erased")
    assert traces(state, 1) == traces(state, 2) == []


def test_an_engine_that_cannot_be_asked(tmp_path: Path) -> None:
    client = EngineClient("127.0.0.1", 9)
    with full_disk(0), pytest.raises(TideError, match="could not be asked"):
        client.erase(tmp_path, Which(everything=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "say which samples"),
        (["1", "--all"], 2, "say which samples"),
        (["--all", "--older-than", "1h"], 2, "say which samples"),
        (["--older-than", "yesterday"], 2, "'yesterday' is not an age"),
        (["one"], 2, "whole number"),
        (["--all"], 2, "asks before it erases"),
    ],
)
def test_refusals_erase_nothing(state: Path, spool, arguments: list[str], code: int, words: str) -> None:
    done = spool(state, "erase", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert ids(state) == [3, 2, 1]


@pytest.mark.parametrize(("reply", "left", "code"), [("n", [3, 2, 1], 1), ("y", [3], 0)])
def test_it_asks_a_person(state: Path, reply: str, left: list[int], code: int) -> None:
    person, terminal = pty.openpty()
    command = [sys.executable, "-m", "tide_cli", "spool", "erase", "1", "2", "--state-dir", str(state)]
    os.write(person, f"{reply}\n".encode())
    done = subprocess.run(
        command, cwd=ROOT, stdin=terminal, capture_output=True, text=True, timeout=60, env={**os.environ}
    )
    os.close(person)
    os.close(terminal)
    assert "Erase 2 of 3 samples" in done.stderr
    assert done.returncode == code
    assert ids(state) == left


@contextmanager
def running_engine(state: Path, writer: SpoolWriter, how: str) -> Iterator[None]:
    """An appliance's two ends that the command talks to: the supervisor's socket, and an engine that holds `writer`."""
    folder = state / "spool"

    class Engine(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = int(body["server_args"]["tide_erase"])
            if how == "works":
                answer_request(folder, number, writer.erase(read_request(folder, number)))
            elif how == "fails":
                answer_request(folder, number, None, "not today")
            reply(self, b"[false]" if how == "refuses" else b"[false, true]")

        def log_message(self, *_: object) -> None: ...

    class Supervisor(Engine):
        def do_GET(self) -> None:
            reply(
                self,
                json.dumps(
                    {"version": STATUS_VERSION, "address": f"http://127.0.0.1:{engine.server_port}/v1"}
                ).encode(),
            )

        def address_string(self) -> str:
            return "socket"

    def reply(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    paths = Paths.under(state, state)
    lock = StateLock(paths.lock)
    engine = HTTPServer(("127.0.0.1", 0), Engine)
    supervisor = socketserver.UnixStreamServer(str(paths.socket), Supervisor)
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in (engine, supervisor)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server in (engine, supervisor):
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
        lock.release()


def test_a_running_engine_is_asked(state: Path, spool) -> None:
    writer = open_writer(state / "spool")
    with running_engine(state, writer, "works"):
        done = spool(state, "erase", 1, 3, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["samples"] == 2
        assert json.loads(done.stdout)["reservoir"] == 1
        assert ids(state) == [2]
        assert traces(state, 1) == traces(state, 3) == []
    writer.close()
    assert not list((state / "spool").glob("erase-*"))


@pytest.mark.parametrize(("how", "words"), [("fails", "not today"), ("refuses", "it does not capture")])
def test_an_engine_that_cannot_says_why(state: Path, spool, how: str, words: str) -> None:
    writer = open_writer(state / "spool")
    with running_engine(state, writer, how):
        done = spool(state, "erase", "--all", "--yes")
    writer.close()
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert ids(state) == [3, 2, 1]
    assert not list((state / "spool").glob("erase-*"))


def test_an_engine_that_does_not_answer(state: Path, spool) -> None:
    """The ring is taken, but nobody listens."""
    writer = open_writer(state / "spool")
    done = spool(state, "erase", "--all", "--yes")
    writer.close()
    assert done.returncode == 3
    assert "another process writes the spool" in done.stderr
    assert "try again when it is done" in done.stderr
    assert ids(state) == [3, 2, 1]
    assert not list((state / "spool").glob("erase-*"))
