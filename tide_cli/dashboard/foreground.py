"""The dashboard on the terminal of `tide up`: a process of its own, so that its end or its failure ends nothing else.

It closes when the pipe to it does, whether because the appliance has ended or because this process was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import suppress

from tide_cli.paths import Paths

_CLOSES_WITHIN = 5.0  # seconds
# what a dashboard that was killed leaves behind: the other screen, a hidden cursor, pasting and focus reports
_RESET = "\x1b[?1049l\x1b[?25h\x1b[?2004l\x1b[?1004l\x1b[?1000l\x1b[?1003l\x1b[<u\x1b[0m"


def can_draw() -> bool:
    """Whether there is a terminal to draw on, to which this process is in the foreground."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams) or os.environ.get("TERM") in (
        None,
        "",
        "dumb",
    ):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


class Foreground:
    """on_close: called with words for the user when the dashboard has closed and the appliance goes on.

    Made and closed by the main thread.
    """

    def __init__(self, paths: Paths, on_close: Callable[[str], None]) -> None:
        self._on_close = on_close
        self._attributes = termios.tcgetattr(sys.stdin)
        reading, self._writing = os.pipe()
        arguments = [str(reading), str(os.getpid()), str(paths.state), str(paths.cache)]
        # Ctrl-C is a key there; while it starts it must not be what ends it
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tide_cli.dashboard.attached", *arguments], pass_fds=[reading]
            )
        finally:
            signal.signal(signal.SIGINT, before)
            os.close(reading)
        self._closing = False
        self._waiting = threading.Thread(target=self._wait, name="dashboard", daemon=True)
        self._waiting.start()

    @property
    def shown(self) -> bool:
        """Whether the screen is the dashboard's."""
        return self._waiting.is_alive()

    def close(self) -> None:
        """Take the screen back."""
        self._closing = True
        os.close(self._writing)
        self._waiting.join(_CLOSES_WITHIN)
        if self._waiting.is_alive():
            self._process.kill()
            self._waiting.join()

    def _wait(self) -> None:
        code = self._process.wait()
        with suppress(OSError, termios.error):  # the terminal may be gone as well
            if code:
                print(_RESET, end="", flush=True)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._attributes)
        if not self._closing:
            self._on_close("the dashboard is closed" if code == 0 else f"the dashboard has failed (exit code {code})")
