"""Commands about a running appliance, whose engine and trainer are scripts."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, tide
from scripted import make_target, publish
from scripted_process import ScriptedAppliance

from tide_cli.supervisor.journal import Journal


def test_a_session(appliance: ScriptedAppliance) -> None:
    appliance.up()
    appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    where = ("--state-dir", appliance.paths.state)

    rows = {row["name"]: row for row in json.loads(tide("ps", "--json", *where).stdout)}
    assert rows["supervisor"]["pid"] == appliance.process.pid
    assert rows["engine"]["state"] == rows["trainer"]["state"] == "READY"
    assert "READY" in tide("ps", *where).stdout
    assert json.loads(tide("status", "--json", *where).stdout)["state"] == "READY"
    assert "v0000 served" in tide("status", *where).stdout

    appliance.store_samples(held_out=4, tokens=20)
    assert tide("train", "pause", *where).stdout == "training paused\n"
    assert tide("train", "now", *where).returncode == 1
    assert json.loads(tide("train", "status", "--json", *where).stdout)["paused"]
    assert "paused by the user" in tide("train", "status", *where).stdout
    assert tide("train", "resume", *where).stdout == "training resumed\n"
    assert tide("train", "now", *where).stdout == "a training cycle has begun\n"
    appliance.until(lambda status: status["drafts"]["served"] == 1)
    versions = json.loads(tide("drafts", "ls", "--json", *where).stdout)
    assert [(row["version"], row["served"], row["parent"]) for row in versions] == [
        ("v0000", False, None),
        ("v0001", True, "v0000"),
    ]
    assert tide("drafts", "use", "0", *where).stdout == "v0000 is served\n"
    refused = tide("drafts", "use", "v0009", *where)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (1, "tide: there is no draft v0009")

    kinds = [event["kind"] for event in json.loads(tide("events", "--json", *where).stdout)]
    assert kinds.count("swap") == 2
    assert "POST /set_internal_state" in tide("logs", "engine", *where).stdout
    assert "v0001 is served" in tide("logs", "supervisor", *where).stdout

    done = tide("down", *where)
    said = done.stderr.splitlines()
    assert (done.returncode, said[-1]) == (0, "tide: the appliance has ended")
    assert re.fullmatch(r"tide: stopping: tide down; [\d.]+ s at most, then what still runs is killed", said[0])
    assert appliance.process.wait(timeout=60) == 0
    assert tide("ps", *where).returncode == 3
    assert "v0001 is served" in tide("events", *where).stdout

    # without an appliance, the choice holds for the next start
    assert "next `tide up --state-dir" in tide("drafts", "use", "1", *where).stdout
    assert appliance.up()["drafts"]["served"] == 1


def test_a_followed_log_grows(appliance: ScriptedAppliance) -> None:
    appliance.up()
    command = [sys.executable, "-m", "tide_cli", "logs", "-f", "supervisor", "--state-dir", str(appliance.paths.state)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as follower:
        try:
            for line in follower.stdout:
                if "the engine is ready" in line:
                    break
            appliance.end()
            assert any("stopping" in line for line in follower.stdout)
        finally:
            follower.terminate()


def test_followed_events_are_one_json_object_a_line(appliance: ScriptedAppliance) -> None:
    appliance.up()
    command = [sys.executable, "-m", "tide_cli", "events", "-f", "--json", "--state-dir", str(appliance.paths.state)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert json.loads(follower.stdout.readline())["kind"] == "captures"
            appliance.end()
            assert any(json.loads(line)["kind"] == "stop" for line in follower.stdout)
        finally:
            follower.terminate()


def test_a_followed_event_with_a_figure_that_is_no_number_is_json_all_the_same(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "tide.db")
    journal.note("gate", "the loss is not a number", {"gain": math.nan, "domains": {"code": math.inf}})
    journal.close()
    command = [sys.executable, "-m", "tide_cli", "events", "-f", "--json", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as follower:
        try:
            line = follower.stdout.readline()
        finally:
            follower.terminate()
    event = json.loads(line, parse_constant=pytest.fail)
    assert event["data"] == {"gain": None, "domains": {"code": None}}


def test_the_plain_lines_of_the_foreground(appliance: ScriptedAppliance) -> None:
    appliance.up()
    code, output = appliance.end()
    assert code == 0
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d the engine is ready", output, re.MULTILINE)


def test_a_detached_start_that_fails_says_why(tmp_path: Path) -> None:
    """A real start up to the draft, which fits the target by its figures but is no safetensors file."""
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "model.safetensors").write_bytes(b"junk")
    (draft / "config.json").write_text(json.dumps({"hidden_size": 8, "vocab_size": 32}))
    answer = tide(
        *("up", "-d", "--wait", "--state-dir", tmp_path / "state", "--cache-dir", tmp_path / "cache"),
        *("--target", make_target(tmp_path), "--draft", draft, "--port", ScriptedAppliance(tmp_path).port),
        *("--spool-size", "1MiB"),
    )
    assert answer.returncode == 1
    lines = answer.stderr.splitlines()  # what it did, then why it ended
    assert "are stored in" in lines[0]
    assert lines[1].startswith("tide: draft started")
    assert lines[2].startswith(f"tide: the draft file {draft}/model.safetensors is damaged")
    assert len(lines) == 4
    assert tide("ps", "--state-dir", tmp_path / "state").returncode == 3


def test_a_second_detached_start_is_refused(appliance: ScriptedAppliance) -> None:
    appliance.up()
    where = ("--state-dir", appliance.paths.state, "--target", make_target(appliance.folder))
    for more in (["-d"], []):
        answer = tide("up", *where, "--port", appliance.port, *more)
        assert answer.returncode == 1
        assert f"already runs on {appliance.paths.state}" in answer.stderr
    assert appliance.status()["state"] == "READY"


def test_an_unusable_version_is_listed_with_the_reason(tmp_path: Path) -> None:
    publish(tmp_path / "drafts", None, tmp_path / "scratch")
    manifest = tmp_path / "drafts" / "v0000" / "manifest.json"
    manifest.chmod(0o600)
    manifest.write_text("{")
    (row,) = json.loads(tide("drafts", "ls", "--json", "--state-dir", tmp_path).stdout)
    assert "manifest.json" in row["error"]


def test_a_choice_beside_a_training_cycle(appliance: ScriptedAppliance) -> None:
    """The cycle's candidate may be served in its place."""
    appliance.up()
    where = ("--state-dir", appliance.paths.state)
    assert tide("drafts", "use", "0", *where).stderr == ""
    appliance.store_samples(held_out=4, tokens=20)
    (appliance.folder / "hold").touch()
    assert tide("train", "now", *where).returncode == 0
    answer = tide("drafts", "use", "0", *where)
    assert (answer.returncode, answer.stdout) == (0, "v0000 is served\n")
    assert "a training cycle runs, whose draft may replace it" in answer.stderr
    assert "`tide train pause --state-dir" in answer.stderr


def test_profile(appliance: ScriptedAppliance) -> None:
    """An engine without round times has measured them before it was called ready; one asks for new ones."""
    appliance.up()
    where = ("--state-dir", appliance.paths.state)
    first = json.loads(tide("profile", "--json", *where).stdout)
    assert first["requests"] >= 1 + 3 + 3  # the first token, and batches of 1, 2 and 4 at the start and now
    assert first["unmeasured"] == [2, 4]
    answer = tide("profile", *where)
    assert "not measured at batch size 2, 4: there are no figures" in answer.stderr
    assert "`tide profile --state-dir" in answer.stderr
    assert "meanwhile" not in answer.stderr
    shown = answer.stdout.splitlines()
    assert shown[0] == "target tiny, device script, dtype float32, sglang 0"
    assert shown[2].split() == ["1", "0", "50.00", "-", "40.00", "-", "1.000"]
    assert shown[3].split() == ["1", "1", "62.50", "10.00", "40.00", "5.00", "0.800"]
    assert shown[-1] == f"kept in {first['file']}"

    appliance.store_samples(held_out=4, tokens=20)
    (appliance.folder / "hold").touch()
    (appliance.folder / "metrics").write_text('sglang:num_running_reqs{model="tiny"} 3\n')
    appliance.until(lambda status: status["load"]["running"] == 3)
    assert tide("train", "now", *where).returncode == 0
    answer = tide("profile", *where)
    assert answer.returncode == 0
    assert "3 requests and a training cycle ran meanwhile" in answer.stderr
    assert "`tide train pause --state-dir" in answer.stderr
    tide("down", *where)
    assert tide("profile", *where).returncode == 3
