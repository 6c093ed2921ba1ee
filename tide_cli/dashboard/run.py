"""How the app is run: its failure becomes an ordinary exception, after the terminal has been given back."""

from __future__ import annotations

import os
import sys

from tide_cli.dashboard.app import TopApp


def run_app(app: TopApp) -> None:
    """Until the user leaves. No mouse: so the terminal's own selection goes on working."""
    for name in ("COLUMNS", "LINES"):  # left there by a shell, they would hide the size that the terminal has now
        os.environ.pop(name, None)
    app.run(mouse=False)
    if app.failure is not None:
        raise app.failure


def wants_ascii() -> bool:
    """Whether the terminal's encoding has nothing but ASCII to offer."""
    return "utf" not in (sys.stdout.encoding or "").lower()
