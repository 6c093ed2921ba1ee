"""TIDE's metrics against the status they are made from, and the Grafana dashboard against what there is to show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tide_cli.telemetry.exporter import Exporter, Tally
from tide_cli.telemetry.figures import READ
from tide_cli.telemetry.load import no_load
from tide_cli.telemetry.prometheus import Sample, parse_page, read_samples

ROOT = Path(__file__).parents[2]
STATES = ["STARTING", "READY", "BACKOFF"]
STATUS: dict[str, Any] = {
    "state": "READY",
    "address": "http://127.0.0.1:30000/v1",
    "target": 'a "b"',
    "started": 1000.5,
    "children": {
        "engine": {"state": "READY", "starts": 2, "failures": 0},
        "trainer": {"state": "BACKOFF", "starts": 3, "failures": 1},
    },
    "load": {**no_load(), "acceptance_length": 1.75},
    "live": {"acceptance_length": 1.5, "on_trial": True, "by_position": [0.5, None], "draft_steps": 3},
    "speedup": 1.25,
    "plain_tok_s": 20.0,
    "drafts": {"served": 3, "latest": 4},
    "gate": {"passed": True, "gain": 0.2, "lower_bound": 0.1},
    "spool": {"samples": 9, "tokens": 900, "dropped_ring_full": 2, "fill": 0.25},
    "training": {"enabled": True, "paused": False, "running": True},
    "trigger": {"tokens": 70, "needed": 100},
    "cycle": {"state": "training", "seconds": 5.0, "remaining_s": 85.0, "loss": 2.5, "tokens_s": 400.0},
    "devices": [
        {"role": "engine", "cores": "0-1", "gpu": None, "use": 0.5, "memory_used": 1, "memory_total": 4, "power": None},
        {"role": "trainer", "cores": None, "gpu": 1, "use": None, "memory_used": 2, "memory_total": 8, "power": 300.0},
    ],
}
UNKNOWN: dict[str, Any] = STATUS | {
    "load": no_load(),
    "live": {"acceptance_length": None, "on_trial": False, "by_position": [], "draft_steps": None},
    "speedup": None,
    "plain_tok_s": None,
    "drafts": {"served": None, "latest": None},
    "gate": None,
    "spool": {},
    "cycle": {"state": "waiting", "seconds": None, "remaining_s": None, "loss": None, "tokens_s": None},
    "devices": [],
}


def page(status: Mapping[str, Any], tally: Tally | None = None) -> str:
    return Exporter(lambda: status, tally or Tally(), STATES).page().decode()


def value(text: str, name: str, **labels: str) -> float | None:
    found = [one for one in read_samples(text, {name}) if all(one.label(k) == v for k, v in labels.items())]
    assert len(found) <= 1
    return found[0].value if found else None


def test_every_figure_is_that_of_the_status() -> None:
    text = page(STATUS)
    assert value(text, "tide_acceptance_length") == 1.75
    assert value(text, "tide_served_acceptance_length") == 1.5
    assert [value(text, "tide_acceptance_ratio", position=place) for place in "12"] == [0.5, None]
    assert (value(text, "tide_draft_steps"), value(text, "tide_speedup_ratio")) == (3, 1.25)
    assert value(text, "tide_plain_tokens_per_second") == 20
    assert (value(text, "tide_served_draft_version"), value(text, "tide_latest_draft_version")) == (3, 4)
    assert (value(text, "tide_gate_gain"), value(text, "tide_gate_lower_bound")) == (0.2, 0.1)
    assert (value(text, "tide_spool_samples_total"), value(text, "tide_spool_tokens_total")) == (9, 900)
    assert value(text, "tide_spool_dropped_requests_total", cause="ring_full") == 2
    assert value(text, "tide_spool_fill_ratio") == 0.25
    assert (value(text, "tide_trigger_tokens"), value(text, "tide_trigger_needed_tokens")) == (70, 100)
    assert (value(text, "tide_cycle_elapsed_seconds"), value(text, "tide_cycle_remaining_seconds")) == (5, 85)
    assert (value(text, "tide_training_loss"), value(text, "tide_training_tokens_per_second")) == (2.5, 400)
    states = {state: value(text, "tide_child_state", child="trainer", state=state) for state in STATES}
    assert states == {"STARTING": 0, "READY": 0, "BACKOFF": 1}
    assert value(text, "tide_child_starts_total", child="trainer") == 3
    assert value(text, "tide_child_failures", child="trainer") == 1
    assert value(text, "tide_device_use_ratio", role="engine", device="cores 0-1") == 0.5
    assert value(text, "tide_device_power_watts", role="trainer", device="gpu 1") == 300
    assert value(text, "tide_engine_metrics_info", url="http://127.0.0.1:30000/metrics") == 1
    assert (value(text, "tide_ready"), value(text, "tide_start_time_seconds")) == (1, 1000.5)


def test_events_are_counted() -> None:
    tally = Tally()
    for kind, data in (
        ("swap", {}),
        ("swap", {}),
        ("rollback", {}),
        ("drift", {}),
        ("gate", {"passed": True}),
        ("gate", {"passed": False}),
        ("cycle_end", {"published": 0, "seconds": 90.5}),
        ("cycle_end", {"published": None}),
        ("started", {}),
    ):
        tally.count(kind, data)
    text = page(STATUS, tally)
    assert [value(text, f"tide_{name}_total") for name in ("swaps", "rollbacks", "drifts")] == [2, 1, 1]
    assert [value(text, "tide_gates_total", result=result) for result in ("passed", "refused")] == [1, 1]
    assert [value(text, "tide_cycles_total", result=result) for result in ("published", "nothing")] == [1, 1]
    assert value(text, "tide_cycle_seconds_total") == 90.5


def test_what_is_not_known_has_no_sample_and_no_figure_is_made_up() -> None:
    named = {sample.name for sample in ours(page(UNKNOWN))}
    gone = {sample.name for sample in ours(page(STATUS))} - named
    assert {"tide_acceptance_length", "tide_speedup_ratio", "tide_spool_fill_ratio", "tide_training_loss"} <= gone
    assert {"tide_swaps_total", "tide_child_state", "tide_ready"} <= named


def ours(text: str) -> list[Sample]:
    return [sample for sample in read_samples(text) if sample.name.startswith("tide_")]


def test_names_and_units_follow_the_conventions() -> None:
    """As the reference parser reads them: a counter ends in _total, every name has help, no unit but base units."""
    families = list(text_string_to_metric_families(page(STATUS)))
    assert len(families) > 40
    for family in families:
        assert family.documentation, family.name
        assert re.fullmatch(r"tide_[a-z_]+", family.name), family.name
        assert not re.search(r"_(ms|milliseconds|mb|kb|percent|minutes)\b", family.name), family.name
        assert all(sample.name.endswith("_total") for sample in family.samples if family.type == "counter")
    assert "tide_supervisor_process_resident_memory_bytes" in parse_page(page(STATUS))


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "telemetry.md").read_text()
    assert [name for name in parse_page(page(STATUS)) if f"`{name}`" not in text and "_process_" not in name] == []


def test_every_metric_on_the_dashboard_exists() -> None:
    dashboard = json.loads((ROOT / "configs" / "grafana-dashboard.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    names = {name for text in shown for name in re.findall(r"\b(?:tide_|sglang:)[a-z_]+", text)}
    assert len(names) > 20
    assert names - parse_page(page(STATUS)).keys() - set(READ) == set()
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
