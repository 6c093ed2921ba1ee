"""Running `tide` as a person does: a process, its two streams and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tide(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command, with no TIDE_* variable and no settings file but those given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDE_")}
    return subprocess.run(
        [sys.executable, "-m", "tide_cli", *map(str, arguments)],
        env={**inherited, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
