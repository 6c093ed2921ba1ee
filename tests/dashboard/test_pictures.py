"""Pictures of a recorded appliance at three sizes; TIDE_TEST_PICTURES names a folder that keeps them.

docs/top.svg is one of them: `TIDE_TEST_PICTURES=FOLDER pytest tests/dashboard/test_pictures.py`, and then
healthy-120x40.svg.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from moments import MOMENTS
from piloted import Piloted, piloted

from tide_cli.dashboard.panels import PANELS

ROOT = Path(__file__).parents[2]
SIZES = [(80, 24), (120, 40), (200, 60)]
SAYS = {
    "healthy": ["TIDE READY", "× plain", "15 min ago", "▲v0001"],
    "degraded": ["TIDE DEGRADED", "The engine is not well: no token for"],
    "day_0": ["TIDE READY", "1.00 × plain", "v0000 served"],
    "swap": ["TIDE READY", "v0000 served, newest v0001"],
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("moment", MOMENTS)
def test_picture(moment: str, size: tuple[int, int], tmp_path: Path) -> None:
    folder = Path(os.environ.get("TIDE_TEST_PICTURES") or tmp_path)
    drawn: list[str] = []

    async def use(top: Piloted) -> None:
        drawn.append(await top.text())
        (folder / f"{moment}-{size[0]}x{size[1]}.svg").write_text(top.app.picture())

    piloted(use, moment, size)
    (text,) = drawn
    assert [panel.title for panel in PANELS if f"{panel.key} {panel.title}" not in text] == []
    assert [words for words in SAYS[moment] if words not in text] == []
    assert "None" not in text
    assert "nan" not in text
    (picture,) = folder.glob(f"{moment}-{size[0]}x{size[1]}.svg")
    assert "Engine" in picture.read_text()


def test_the_picture_in_the_readme_is_one_of_these() -> None:
    assert "docs/top.svg" in (ROOT / "README.md").read_text()
    picture = (ROOT / "docs" / "top.svg").read_text()
    words = " ".join(re.findall(r">([^<]+)<", picture)).replace("&#160;", " ")
    assert [panel.title for panel in PANELS if panel.title not in words] == []
    assert len(picture) < 80_000
