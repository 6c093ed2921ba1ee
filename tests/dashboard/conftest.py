from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "supervisor"))

from scripted_process import ROOT, ScriptedAppliance
from terminals import HAS_TMUX, Emulator, Terminal, Tmux


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[ScriptedAppliance]:
    made = ScriptedAppliance(tmp_path)
    yield made
    made.close()


Open = Callable[..., Terminal]


@pytest.fixture(params=[Emulator, *([Tmux] if HAS_TMUX else [])], ids=lambda kind: kind.__name__.lower())
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens terminals: terminal(*command, columns=, rows=, **environment), the command being Python's arguments."""
    opened: list[Terminal] = []

    def open_terminal(*command: object, columns: int = 100, rows: int = 32, **environment: str) -> Terminal:
        folder = tmp_path / f"terminal{len(opened)}"
        folder.mkdir()
        environment = {"PYTHONPATH": ":".join([str(ROOT), *sys.path]), "LANG": "C.UTF-8", **environment}
        made = request.param([sys.executable, *map(str, command)], environment, folder, (columns, rows))
        opened.append(made)
        return made

    yield open_terminal
    for each in opened:
        each.close()
