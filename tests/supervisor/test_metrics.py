"""The metrics of a running appliance, over the control socket and over a port."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from scripted import scripted_settings
from scripted_process import ScriptedAppliance

from tide_cli.errors import UsageError
from tide_cli.supervisor.appliance import check_settings
from tide_cli.telemetry.prometheus import parse_page


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_metrics_over_the_socket_and_over_a_port(appliance: ScriptedAppliance) -> None:
    port = free_port()
    appliance.up(f"metrics_port={port}")
    appliance.store_samples(held_out=4, tokens=150)
    appliance.until(lambda status: status["drafts"]["served"] == 1 and status["spool"].get("fill") is not None)
    transport = httpx.HTTPTransport(uds=str(appliance.paths.socket))
    with httpx.Client(transport=transport, base_url="http://tide") as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    figures = parse_page(answer.text)
    assert figures["tide_spool_samples_total"] == 4
    assert figures["tide_served_draft_version"] == figures["tide_swaps_total"] == 1
    assert figures["tide_cycles_total"] == figures["tide_gates_total"] == 1
    assert figures["tide_child_starts_total"] == 3  # the first draft, the engine, the trainer
    other = parse_page(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text)
    assert other["tide_served_draft_version"] == 1
    assert other.keys() == figures.keys()
    with socket.socket() as elsewhere:  # this machine by another name: nobody listens there
        assert elsewhere.connect_ex(("127.0.0.2", port)) != 0
    appliance.end()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_cannot_be_had_is_refused_before_anything_starts(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(UsageError, match="is the engine's"):
        check_settings(scripted_settings(tmp_path, port, metrics_port=port))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="metrics_port: cannot listen on port"):
            check_settings(scripted_settings(tmp_path, port, metrics_port=taken.getsockname()[1]))
    assert not (tmp_path / "state").exists()
