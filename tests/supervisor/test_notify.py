from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_process import ROOT, ScriptedAppliance

from tide_cli.paths import Paths
from tide_cli.supervisor.journal import read_events
from tide_cli.supervisor.lock import make_private
from tide_cli.supervisor.notify import Notifier, event_variables
from tide_cli.supervisor.procfs import environment, processes

EVENT = {"id": 7, "time": 1_700_000_000.25, "kind": "swap", "text": 'it\'s "v0001"\nnow; $HOME', "data": {"version": 1}}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths.under(tmp_path / "state", tmp_path / "cache")
    make_private(found.logs)
    return found


class Heard:
    """What was said; `wait` until something is."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._new = threading.Event()

    def __call__(self, text: str) -> None:
        self.words.append(text)
        self._new.set()

    def wait(self) -> str:
        assert self._new.wait(60)
        return self.words[-1]


def test_what_the_command_is_told(paths: Paths) -> None:
    heard = Heard()
    notifier = Notifier(f'env -0 > "{paths.state}/$TIDE_EVENT_ID"; echo done', paths, heard)
    for number in range(20):
        notifier.tell({**EVENT, "id": number})
    notifier.close(within=60)
    assert heard.words == []
    told = dict(entry.split("=", 1) for entry in (paths.state / "7").read_text().rstrip("\0").split("\0"))
    assert told["TIDE_EVENT_TEXT"] == EVENT["text"]
    assert told["TIDE_EVENT_KIND"] == "swap"
    assert told["TIDE_EVENT_TIME"] == "2023-11-14T22:13:20.250+00:00"
    assert json.loads(told["TIDE_EVENT_DATA"]) == EVENT["data"]
    assert told["TIDE_STATE_DIR"] == str(paths.state)
    written = [paths.state / str(number) for number in range(20)]
    assert sorted(written, key=lambda file: file.stat().st_mtime_ns) == written
    log = paths.logs / "on_event.log"
    assert (log.read_text(), log.stat().st_mode & 0o777) == ("done\n" * 20, 0o600)


def test_every_variable_is_documented(paths: Paths) -> None:
    text = (ROOT / "docs" / "telemetry.md").read_text()
    assert [name for name in event_variables(EVENT, paths) if f"`{name}`" not in text] == []


def test_values_that_no_environment_takes_are_cut(paths: Paths) -> None:
    odd = {**EVENT, "id": None, "text": "a\0b" + "x" * 10**6, "data": {"long": "x" * 10**6}}
    told = event_variables(odd, paths)
    assert told["TIDE_EVENT_TEXT"].startswith("abx")
    assert len(told["TIDE_EVENT_TEXT"]) == 32_000
    assert (told["TIDE_EVENT_DATA"], told["TIDE_EVENT_ID"]) == ("{}", "")
    heard = Heard()
    notifier = Notifier("true", paths, heard)
    notifier.tell(odd)
    notifier.close(within=60)
    assert heard.words == []


def test_a_failure_is_said_once_until_it_has_worked_again(paths: Paths) -> None:
    heard = Heard()
    notifier = Notifier("exit $TIDE_EVENT_ID", paths, heard)
    for number in (3, 4, 0, 5, 5):
        notifier.tell({**EVENT, "id": number})
    notifier.close(within=60)
    assert [words.split(";")[0] for words in heard.words] == [
        "on_event failed: exit code 3",
        "on_event failed: exit code 5",
    ]
    assert str(paths.logs / "on_event.log") in heard.words[0]


def test_its_own_failures_are_not_told_to_it(paths: Paths) -> None:
    notifier = Notifier(f"touch {paths.state}/told", paths, pytest.fail)
    notifier.tell({**EVENT, "kind": "on_event"})
    notifier.close(within=60)
    assert not (paths.state / "told").exists()


def test_a_command_that_hangs_is_killed_with_what_it_has_started(paths: Paths) -> None:
    heard = Heard()
    notifier = Notifier(f"touch {paths.state}/begun; sleep 600 & sleep 600", paths, heard, within=0.3)
    notifier.tell(EVENT)
    assert heard.wait().startswith("on_event failed: killed after")
    assert (paths.state / "begun").exists()
    notifier.close(within=60)
    entry = f"TIDE_STATE_DIR={paths.state}".encode()
    assert [stat.pid for stat in processes() if entry in environment(stat.pid)] == []


def test_telling_never_waits_and_what_is_too_much_is_dropped(paths: Paths) -> None:
    heard = Heard()
    notifier = Notifier(
        f"echo >> {paths.state}/count; while test ! -e {paths.state}/go; do sleep 0.05; done", paths, heard
    )
    for _ in range(500):
        notifier.tell(EVENT)
    assert heard.wait().startswith("on_event is too slow")
    (paths.state / "go").touch()
    notifier.close(within=60)
    assert len(heard.words) == 1
    assert 100 <= len((paths.state / "count").read_text()) <= 101


def test_the_end_waits_for_the_last_ones_but_not_for_ever(paths: Paths) -> None:
    heard = Heard()
    notifier = Notifier("sleep 600", paths, heard)
    for _ in range(200):
        notifier.tell(EVENT)
    begun = time.monotonic()
    notifier.close(within=0.5)
    assert time.monotonic() - begun < 60


def test_an_appliance_with_a_command_that_fails(appliance: ScriptedAppliance) -> None:
    """Every event is told, the failures are one event, and serving goes on; the last event is told, too."""
    (appliance.folder / "seen").touch()
    appliance.up(f"on_event=echo $TIDE_EVENT_KIND >> {appliance.folder}/seen; exit 3")
    appliance.until(lambda status: any(event["kind"] == "trainer_ready" for event in status["events"]))
    assert appliance.end()[0] == 0
    events: list[dict[str, Any]] = read_events(appliance.paths.database)
    kinds = [event["kind"] for event in events]
    assert kinds.count("on_event") == 1
    told = (appliance.folder / "seen").read_text().split()
    assert told == [kind for kind in kinds if kind != "on_event"]
    assert {"ready", "stop"} <= set(told)
    assert appliance.family() == []
