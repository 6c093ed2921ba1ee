"""What `tide doctor` says of the capture, and of a machine within limits."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tide_cli.hardware.inventory import Inventory, NumaNode
from tide_cli.settings import Settings
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.ring import Ring
from tide_cli.supervisor.checkup import _capture, _devices


def test_without_an_engine_it_looks_at_the_spool(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    assert _capture(settings, running=False).text == "no spool yet"
    settings.paths.spool.mkdir()
    Ring.create(settings.paths.spool, RowLayout(hidden_size=8, target="t"), 2**20).close()
    assert _capture(settings, running=False).ok
    with (settings.paths.spool / "ring.bin").open("r+b") as file:
        file.truncate(5000)
    finding = _capture(settings, running=False)
    assert not finding.ok
    assert "not a usable spool" in finding.text


@pytest.mark.parametrize("failure", [None, "OSError: the ring's file was deleted"])
def test_with_an_engine_it_asks_it(tmp_path: Path, failure: str | None) -> None:
    capture = {"samples": 7} | ({"failure": failure} if failure else {})

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps({"internal_states": [{"tide": {"capture": capture}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = Settings(state_dir=tmp_path)
    settings.paths.lock.parent.mkdir(parents=True, exist_ok=True)
    settings.paths.lock.write_text(json.dumps({"pid": 1, "host": "127.0.0.1", "port": server.server_port}))
    finding = _capture(settings, running=True)
    server.shutdown()
    server.server_close()
    assert finding.ok is (failure is None)
    assert (failure or "7 samples") in finding.text


def test_the_limits_of_a_container_are_named(tmp_path: Path) -> None:
    limit = "a control group, as of a container, leaves 8.0 of the machine's 24.0 GiB of memory"
    inventory = Inventory((NumaNode(0, (0, 1), 2**33, 2**33),), limits=(limit,))
    devices, plan = _devices(Settings(state_dir=tmp_path), inventory)
    assert devices.ok
    assert limit in devices.text
    assert limit in plan.text
