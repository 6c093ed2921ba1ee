from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_process import ScriptedAppliance


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[ScriptedAppliance]:
    made = ScriptedAppliance(tmp_path)
    yield made
    made.close()
