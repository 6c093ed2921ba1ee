"""Whole lives of an appliance whose engine and trainer are scripts (see scripted.py)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from scripted import publish, scripted_settings
from scripted_process import ROOT, WITHIN, ScriptedAppliance

from tide_cli.drafts.store import DraftStore
from tide_cli.errors import NotRunningError, TideError, UsageError
from tide_cli.file_locks import is_locked
from tide_cli.paths import Paths
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.ring import Ring
from tide_cli.supervisor.appliance import check_settings, outcome_error, read_outcome, running_appliance
from tide_cli.supervisor.control_client import ask
from tide_cli.supervisor.down import bring_down
from tide_cli.supervisor.journal import read_events, read_served


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def nothing_is_left(appliance: ScriptedAppliance) -> None:
    assert appliance.family() == []
    assert port_is_free(appliance.port)
    assert not is_locked(appliance.paths.lock)
    assert not appliance.paths.socket.exists()


def shared_memory_of(appliance: ScriptedAppliance) -> list[Path]:
    return list(Path("/dev/shm").glob(f"sglang_loads_{appliance.port}_*.shm"))


def undocumented(status: dict[str, Any]) -> list[str]:
    """Fields of a status that docs/telemetry.md does not name."""
    text = (ROOT / "docs" / "telemetry.md").read_text()
    known = {name.removesuffix(".NAME") for name in re.findall(r"`([a-z0-9_.]+(?:NAME)?)`", text)}
    names = [name for name in status if name not in known]
    for name in ("load", "live", "cycle", "trigger", "training", "drafts"):
        names += [f"{name}.{field}" for field in status[name] if not {field, f"{name}.{field}"} & known]
    return [name for name in names if not any(one.startswith(f"{name}.") for one in known)]


def test_a_foreign_folder_of_the_same_name_is_not_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tide_cli.paths._MAX_SCRATCH_PATH", 1000)  # so that it would lie in the state folder
    kept = tmp_path / "state" / "tmp" / "kept"
    kept.mkdir(parents=True)
    with pytest.raises(UsageError, match="is in the way"):
        check_settings(scripted_settings(tmp_path, 31_997))
    (tmp_path / "state" / "tide.db").touch()  # an appliance that was killed has left it
    check_settings(scripted_settings(tmp_path, 31_997))


def test_after_a_swap_and_not_before_no_more_versions_stay_than_are_to_be_kept(appliance: ScriptedAppliance) -> None:
    for parent in (None, *range(5)):
        publish(appliance.paths.drafts, parent, appliance.folder / "scratch")
    assert appliance.up("keep_drafts=1")["drafts"]["served"] == 5
    ask(appliance.paths.socket, "POST", "/v1/drafts/use", {"version": 4})
    appliance.until(lambda status: "tidied" in [event["kind"] for event in status["events"]])
    (event,) = read_events(appliance.paths.database, kind="tidied")
    kept = {"v0000": "the first", "v0003": "parent of the served one", "v0004": "served", "v0005": "served before"}
    assert event["data"] == {"removed": [1, 2], "kept": kept, "keep_drafts": 1}
    assert DraftStore(appliance.paths.drafts).versions() == [0, 3, 4, 5]


def test_serve_capture_train_swap_and_end(appliance: ScriptedAppliance) -> None:
    status = appliance.up()
    first = {"version": 0, "tokens": 10, "gain": 0.25, "acceptance_length": None, "bad": None}
    assert status["drafts"] == {"served": 0, "latest": 0, "in_use": [0], "versions": [first]}
    assert status["address"] == f"http://127.0.0.1:{appliance.port}/v1"
    assert appliance.paths.state.stat().st_mode & 0o777 == 0o700
    assert appliance.paths.socket.stat().st_mode & 0o777 == 0o600
    assert read_served(appliance.paths.database) == 0

    appliance.store_samples(held_out=4, tokens=150)
    status = appliance.until(lambda status: status["drafts"]["served"] == 1 and status["engine"])
    assert status["spool"].items() >= {"samples": 4, "tokens": 150}.items()
    status = appliance.until(lambda status: status["speculation"] and status["spool"]["fill"])
    assert (status["speculation"]["steps"], status["speculation"]["reason"]) == (2, "it pays")
    assert status["live"]["by_position"] == [0.5, 0.4]
    assert (status["live"]["draft_steps"], status["live"]["why"]) == (2, "it pays")
    assert (status["plain_tok_s"], status["speedup"]) == (20.0, 1.3)
    assert status["spool"]["fill"] == 0.25
    assert [device["role"] for device in status["devices"]] == ["engine", "trainer"]
    assert status["engine_answered"] > status["started"]
    assert undocumented(status) == []
    assert status["engine"] == {"tok_s": 12.5, "accept_length": 1.75, "running": 0, "queued": 0}
    assert status["gate"]["reason"] == "gains 0.25"
    assert read_served(appliance.paths.database) == 1

    code, _ = appliance.end()
    assert code == 0
    nothing_is_left(appliance)
    events = read_events(appliance.paths.database)
    (ready,) = [event for event in events if event["kind"] == "ready"]
    assert list(ready["data"]["phases"]) == ["draft", "imports", "weights"]
    kinds = [event["kind"] for event in events]
    order = ["ready", "trainer_ready", "cycle", "gate", "published", "cycle_end", "stop"]
    assert [kind for kind in kinds if kind in order] == order
    assert "swap" in kinds

    # the next start goes on with the served draft, and does not count the same tokens again
    status = appliance.up()
    assert status["drafts"] == {"served": 1, "latest": 1, "in_use": [0, 1], "versions": [first, first | {"version": 1}]}
    assert "draft" not in status["children"]
    status = appliance.until(lambda status: status["spool"])
    assert status["training"]["new_tokens"] == 0


def test_a_killed_engine_comes_back_with_the_served_draft(appliance: ScriptedAppliance) -> None:
    appliance.up()
    first = appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    (table,) = shared_memory_of(appliance)
    with pytest.raises(TideError, match="0 held-out samples, and the gate needs 4"):
        ask(appliance.paths.socket, "POST", "/v1/train")
    appliance.store_samples(held_out=4, tokens=50)
    assert ask(appliance.paths.socket, "POST", "/v1/train")["done"]
    before = appliance.until(lambda status: status["drafts"]["served"] == 1)
    os.kill(first["children"]["engine"]["pid"], signal.SIGKILL)
    after = appliance.until(lambda s: s["state"] == "READY" and s["children"]["engine"]["starts"] == 2)
    assert after["drafts"]["served"] == 1
    assert after["children"]["trainer"]["pid"] == before["children"]["trainer"]["pid"]
    assert f"engine {appliance.folder} {appliance.port} 1" in _command_line(after["children"]["engine"]["pid"])
    # of its own shared memory only that of the present engine is left, and nothing after the end
    assert len(shared_memory_of(appliance)) == 1
    assert not table.exists()
    appliance.end()
    assert shared_memory_of(appliance) == []


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def test_a_killed_trainer_does_not_touch_serving(appliance: ScriptedAppliance) -> None:
    appliance.up()
    before = appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    os.kill(before["children"]["trainer"]["pid"], signal.SIGKILL)
    after = appliance.until(
        lambda s: s["children"]["trainer"]["state"] == "READY" and s["children"]["trainer"]["starts"] == 2
    )
    assert after["state"] == "READY"
    assert after["children"]["engine"]["pid"] == before["children"]["engine"]["pid"]


def test_an_engine_that_has_lost_a_process_is_started_anew(appliance: ScriptedAppliance) -> None:
    appliance.up()
    (scheduler,) = [pid for pid in appliance.family() if _command_line(pid).startswith("sglang::")]
    os.kill(scheduler, signal.SIGKILL)
    appliance.until(lambda s: s["state"] == "READY" and s["children"]["engine"]["starts"] == 2)
    assert any("scheduler ended" in event["text"] for event in read_events(appliance.paths.database, kind="broken"))


def test_a_silent_engine_is_degraded_and_started_anew_if_it_stays_so(appliance: ScriptedAppliance) -> None:
    appliance.up("hang_timeout=6")
    mute = appliance.folder / "mute"
    mute.write_text("")
    appliance.until(lambda status: status["state"] == "DEGRADED")
    mute.unlink()
    status = appliance.until(lambda status: status["state"] == "READY")
    assert status["children"]["engine"]["starts"] == 1
    mute.write_text("")
    appliance.until(lambda status: status["children"]["engine"]["state"] in ("BACKOFF", "STOPPING"))
    mute.unlink()
    status = appliance.until(lambda s: s["state"] == "READY" and s["children"]["engine"]["starts"] == 2)
    kinds = [event["kind"] for event in read_events(appliance.paths.database)]
    assert [kind for kind in kinds if kind in ("degraded", "recovered", "broken")][:3] == [
        "degraded",
        "recovered",
        "degraded",
    ]
    assert "broken" in kinds


def test_restart(appliance: ScriptedAppliance) -> None:
    appliance.up()
    before = appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")["children"]
    restart = {"children": ["engine", "trainer"]}
    assert "restarting" in ask(appliance.paths.socket, "POST", "/v1/restart", restart)["done"]
    after = appliance.until(
        lambda s: all(
            s["children"][name]["starts"] == 2 and s["children"][name]["state"] == "READY"
            for name in ("engine", "trainer")
        )
    )["children"]
    assert after["engine"]["failures"] == after["trainer"]["failures"] == 0
    assert after["engine"]["pid"] != before["engine"]["pid"]
    with pytest.raises(TideError, match="nothing is restarted: this appliance has no nurse"):
        ask(appliance.paths.socket, "POST", "/v1/restart", {"children": ["nurse"]})


def test_a_pause_holds_over_a_restart(appliance: ScriptedAppliance) -> None:
    appliance.up()
    appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    assert ask(appliance.paths.socket, "POST", "/v1/train/pause", {"pause": True}) == {"done": "training paused"}
    appliance.end()
    assert appliance.up()["training"]["paused"]
    appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY")
    appliance.store_samples(held_out=4, tokens=1000)
    appliance.until(lambda status: status["training"]["new_tokens"] == 1000)
    assert not appliance.status()["training"]["running"]
    assert ask(appliance.paths.socket, "POST", "/v1/train/pause", {"pause": False})["done"]
    appliance.until(lambda status: status["drafts"]["served"] == 1)


def test_a_cycle_that_a_pause_has_cut_short_is_taken_up_again_after_a_restart(appliance: ScriptedAppliance) -> None:
    hold = appliance.folder / "hold"
    hold.write_text("")
    appliance.up()
    appliance.store_samples(held_out=4, tokens=1000)
    appliance.until(lambda status: status["training"]["running"])
    assert ask(appliance.paths.socket, "POST", "/v1/train/pause", {"pause": True})["done"]
    appliance.until(lambda status: not status["training"]["running"])
    appliance.end()
    hold.unlink()
    appliance.up()
    status = appliance.until(lambda status: status["children"]["trainer"]["state"] == "READY" and status["spool"])
    assert (status["training"]["new_tokens"], status["training"]["running"]) == (0, False)
    assert ask(appliance.paths.socket, "POST", "/v1/train/pause", {"pause": False})["done"]
    appliance.until(lambda status: status["drafts"]["served"] == 1)


def test_use_and_a_refusal(appliance: ScriptedAppliance) -> None:
    appliance.up()
    publish(appliance.paths.drafts, 0, appliance.folder / "scratch")
    use = {"version": 1}
    assert ask(appliance.paths.socket, "POST", "/v1/drafts/use", use) == {"done": "v0001 is served"}
    (appliance.folder / "refuse").write_text("")
    with pytest.raises(TideError, match="not today"):
        ask(appliance.paths.socket, "POST", "/v1/drafts/use", {"version": 0})
    with pytest.raises(TideError, match="no draft v0009"):
        ask(appliance.paths.socket, "POST", "/v1/drafts/use", {"version": 9})
    assert appliance.status()["drafts"]["served"] == read_served(appliance.paths.database) == 1


def test_a_version_that_was_published_and_never_served_is_served_by_the_next_one(appliance: ScriptedAppliance) -> None:
    appliance.up()
    appliance.end()
    publish(appliance.paths.drafts, 0, appliance.folder / "scratch")
    appliance.up()
    appliance.until(lambda status: status["drafts"]["served"] == 1)


def test_a_second_one_on_the_same_folder_is_refused(appliance: ScriptedAppliance) -> None:
    appliance.up()
    second = ScriptedAppliance(appliance.folder)
    output = second.start().communicate(timeout=60)[0]
    assert f"already runs on {appliance.paths.state} (pid {appliance.process.pid})" in output
    assert second.process.returncode != 0
    assert appliance.status()["state"] == "READY"


@pytest.mark.parametrize("by", ["up", "down"])
def test_what_a_killed_supervisor_leaves_is_reaped(appliance: ScriptedAppliance, by: str) -> None:
    appliance.up()
    appliance.process.kill()
    appliance.process.communicate()
    # the engine's grandchild is in a session of its own and hears of nothing
    assert appliance.family()
    if by == "up":
        status = appliance.up()
        assert any(event["kind"] == "leftovers" for event in read_events(appliance.paths.database))
        assert status["state"] == "READY"
        appliance.end()
    else:
        ended = bring_down(appliance.paths)
        assert not ended.supervisor
        assert ended.leftovers >= 1
        assert not appliance.paths.scratch.exists()
    nothing_is_left(appliance)
    assert shared_memory_of(appliance) == []


def test_down(appliance: ScriptedAppliance) -> None:
    with pytest.raises(NotRunningError):
        bring_down(appliance.paths)
    appliance.up()
    assert bring_down(appliance.paths).supervisor
    nothing_is_left(appliance)
    assert appliance.process.wait(timeout=60) == 0
    with pytest.raises(NotRunningError):
        bring_down(appliance.paths)


@pytest.mark.parametrize("way", ["removed", "moved", "emptied"])
def test_without_its_state_folder_it_ends(appliance: ScriptedAppliance, way: str) -> None:
    appliance.up()
    state = appliance.paths.state
    if way == "moved":
        state.rename(state.with_name("elsewhere"))
    elif way == "removed":
        shutil.rmtree(state)
    else:
        for path in state.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    output, _ = appliance.process.communicate(timeout=WITHIN)
    assert "stopping: its state folder was removed, moved or emptied" in output
    assert appliance.process.returncode == 1
    assert appliance.family() == []
    assert port_is_free(appliance.port)
    assert not appliance.paths.scratch.exists()
    if way == "emptied":
        assert list(state.iterdir()) == []
    else:
        assert not state.exists()


def test_a_copy_of_its_folder_is_not_it(appliance: ScriptedAppliance) -> None:
    """What the copy says of processes is true of the original's."""
    before = appliance.up()["children"]
    copied = appliance.folder / "copied"
    shutil.copytree(appliance.paths.state, copied, ignore=shutil.ignore_patterns("*.sock"))
    with pytest.raises(NotRunningError):
        bring_down(Paths.under(copied, appliance.folder / "cache"))
    time.sleep(1)
    after = appliance.status()["children"]
    assert [child["pid"] for child in after.values()] == [child["pid"] for child in before.values()]


def test_one_that_was_replaced_touches_nothing_of_the_next(appliance: ScriptedAppliance) -> None:
    appliance.up()
    appliance.process.send_signal(signal.SIGSTOP)
    state = appliance.paths.state
    state.rename(state.with_name("elsewhere"))
    second = ScriptedAppliance(appliance.folder)
    try:
        before = second.up()["children"]
        appliance.process.send_signal(signal.SIGCONT)
        appliance.process.communicate(timeout=WITHIN)
        time.sleep(1)
        after = second.status()
        assert (after["state"], after["children"]["engine"]["starts"]) == ("READY", 1)
        assert [child["pid"] for child in after["children"].values()] == [child["pid"] for child in before.values()]
    finally:
        second.end()


def test_a_child_that_ignores_the_signal_is_killed(appliance: ScriptedAppliance) -> None:
    (appliance.folder / "stubborn").write_text("")
    appliance.up("stop_timeout=0.5")
    told: list[str] = []
    assert bring_down(appliance.paths, say=told.append).supervisor
    assert told[0].startswith("stopping: tide down; ")
    assert "the engine has not ended within 0.5 s and is killed; a request that was still under way is cut" in told
    assert appliance.process.wait(timeout=60) == 0
    nothing_is_left(appliance)


def test_a_second_signal_kills(appliance: ScriptedAppliance) -> None:
    (appliance.folder / "stubborn").write_text("")
    appliance.up("stop_timeout=1000")
    appliance.process.send_signal(signal.SIGINT)
    appliance.until(lambda status: status["state"] == "STOPPING")
    assert appliance.end()[0] == 0
    nothing_is_left(appliance)


def test_a_damaged_draft_is_named_and_nothing_stays(appliance: ScriptedAppliance) -> None:
    publish(appliance.paths.drafts, None, appliance.folder / "scratch")
    weights = DraftStore(appliance.paths.drafts).path(0) / "model.safetensors"
    weights.chmod(0o600)
    weights.write_bytes(b"other")
    assert appliance.start().wait(timeout=60) == 1
    outcome = read_outcome(appliance.paths)
    assert outcome["code"] == 1
    assert str(weights) in outcome["reason"]
    nothing_is_left(appliance)


def test_a_start_that_no_other_would_mend_is_not_repeated(appliance: ScriptedAppliance) -> None:
    (appliance.folder / "crash").write_text("usage: sglang serve\nsglang serve: error: unrecognized arguments: --bogus")
    assert appliance.start().wait(timeout=60) == 1
    outcome = read_outcome(appliance.paths)
    first, second = outcome["reason"].split("\n")
    assert first == (
        "the engine ended: SGLang does not accept its arguments: unrecognized arguments: --bogus (exit code 1)"
    )
    assert "sglang_arguments" in second
    assert outcome_error(outcome).lines() == [first, second]
    kinds = [event["kind"] for event in read_events(appliance.paths.database)]
    assert "backoff" not in kinds
    nothing_is_left(appliance)


def test_drafts_of_another_target_are_not_served(appliance: ScriptedAppliance) -> None:
    publish(appliance.paths.drafts, None, appliance.folder / "scratch", target="other")
    assert appliance.start().wait(timeout=60) == 1
    assert "belongs to the target other" in read_outcome(appliance.paths)["reason"]


@pytest.mark.parametrize("place", ["control.sock", "logs/supervisor.log", "run/children.json"])
def test_something_else_in_the_place_of_a_file_is_the_reason_of_the_end(tmp_path: Path, place: str) -> None:
    settings = scripted_settings(tmp_path, 31_997)
    workshop = check_settings(settings)
    (tmp_path / "state" / place / "kept").mkdir(parents=True)
    with pytest.raises(TideError, match="cannot use"), running_appliance(workshop, lambda event: None):
        pass
    outcome = read_outcome(settings.paths)
    assert outcome is not None
    assert "cannot use" in outcome["reason"]


def test_a_spool_that_keeps_its_size_is_told_of(tmp_path: Path) -> None:
    layout = RowLayout(8, target="tiny")
    folder = tmp_path / "state" / "spool"
    folder.mkdir(parents=True)
    Ring.create(folder, layout, 2**21).close()

    def told(**chosen: object) -> list[str]:
        notes: list[dict[str, Any]] = []
        with running_appliance(check_settings(scripted_settings(tmp_path, 31_997, **chosen)), notes.append):
            pass
        return [note["text"] for note in notes if note["kind"] == "spool_size_ignored"]

    (words,) = told(spool_size=2**22)
    assert words.startswith(f"--spool-size has no effect: the spool in {folder} keeps its 2.0 MiB; ")
    assert f"delete {folder / 'ring.bin'}," in words
    for chosen in ({"spool_size": 2**21}, {"spool_size": None}, {"spool_size": 2**22, "capture": False}):
        assert told(**chosen) == []
    (folder / "ring.bin").unlink()
    assert told(spool_size=2**22) == []


def test_wrong_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for made in (False, True):
            if made:
                (tmp_path / "state").mkdir()
            with pytest.raises(UsageError, match="is taken by"):
                check_settings(scripted_settings(tmp_path, port))
        (tmp_path / "state").rmdir()
        (tmp_path / "empty").mkdir()
        for draft, words in ((str(tmp_path / "nowhere"), "no draft at"), (str(tmp_path / "empty"), "is not a draft")):
            with pytest.raises(TideError, match=words):
                check_settings(scripted_settings(tmp_path, port, draft=draft))
        with pytest.raises(UsageError, match="--serve-cores"):
            check_settings(scripted_settings(tmp_path, port, serve_cores="99999"))
    assert not (tmp_path / "state").exists()
