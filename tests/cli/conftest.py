from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "supervisor"))

from scripted_process import ScriptedAppliance


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[ScriptedAppliance]:
    made = ScriptedAppliance(tmp_path)
    yield made
    made.close()
