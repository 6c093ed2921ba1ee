"""How the app is run: its failure becomes an ordinary exception, after the terminal has been given back."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading

from tide_cli.dashboard.app import TopApp


def run_app(app: TopApp) -> None:
    """Until the user leaves. No mouse: so the terminal's own selection goes on working."""
    for name in ("COLUMNS", "LINES"):  # left there by a shell, they would hide the size that the terminal has now
        os.environ.pop(name, None)
    threading.Thread(target=_end_with_terminal, args=[sys.stdin.fileno()], name="hangup", daemon=True).start()
    app.run(mouse=False)
    if app.failure is not None:
        raise app.failure


def _end_with_terminal(descriptor: int) -> None:
    """Ends the process once the terminal is gone: an ssh connection that breaks, a closed window.

    Textual's writer dies of the first write that fails, its reader spins on the end of the input, and the rest waits
    for room in the writer's queue, so that neither a signal's handler nor a timer of the app is ever run (8.2.8).
    """
    look = select.poll()
    look.register(descriptor, 0)  # no more than whether it was hung up
    look.poll()
    os._exit(128 + signal.SIGHUP)


def wants_ascii() -> bool:
    """Whether the terminal's encoding has nothing but ASCII to offer."""
    return "utf" not in (sys.stdout.encoding or "").lower()
