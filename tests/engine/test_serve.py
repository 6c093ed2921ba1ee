"""The garbage collector rests while an engine process imports SGLang, and never longer."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tide_cli.engine import plugin
from tide_cli.engine.plugin.config import ENVIRONMENT_VARIABLE, EngineConfig

# in the place of SGLang's own: says what it finds, and has a spawned process say it too
LAUNCH_SERVER = """
import gc, multiprocessing, sys
import child
print(__name__, sys.argv[1:], gc.isenabled(), flush=True)
process = multiprocessing.get_context("spawn").Process(target=child.say)
process.start()
process.join()
"""


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_it_rests_in_the_launcher_and_in_what_it_spawns(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("")
    (tmp_path / "sglang" / "launch_server.py").write_text(LAUNCH_SERVER)
    (tmp_path / "child.py").write_text("import gc\ndef say(): print('child', gc.isenabled())\n")
    done = subprocess.run(
        [sys.executable, "-m", "tide_cli.engine.serve", "--port", "1"],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["__main__ ['--port', '1'] False", "child False"], done.stderr


def test_it_works_again_when_the_plugin_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineConfig, "from_environment", lambda: object())
    monkeypatch.setattr(plugin, "_load", lambda config: None)
    gc.disable()
    plugin.load()
    assert gc.isenabled()


def test_it_works_again_when_the_plugin_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: object) -> None:
        raise SystemExit("moved")

    monkeypatch.setattr(EngineConfig, "from_environment", lambda: object())
    monkeypatch.setattr(plugin, "_load", fail)
    gc.disable()
    with pytest.raises(SystemExit):
        plugin.load()
    assert gc.isenabled()


def test_another_sglang_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    gc.disable()
    plugin.load()
    assert not gc.isenabled()
