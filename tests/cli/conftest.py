from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "supervisor"))

from scripted_process import ScriptedAppliance

from tide_cli.cli import main


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[ScriptedAppliance]:
    made = ScriptedAppliance(tmp_path)
    yield made
    made.close()


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def spool(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`tide spool …`, in this process: what these commands import takes longer than what they do."""

    def run(state: Path, *arguments: object) -> Done:
        with pytest.raises(SystemExit) as end:
            main(["spool", *map(str, arguments), "--state-dir", str(state)])
        return Done(end.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def answer(spool: Callable[..., Done]) -> Callable[..., Any]:
    """What the command prints with --json."""

    def run(state: Path, *arguments: object) -> Any:
        done = spool(state, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
