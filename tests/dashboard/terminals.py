"""A real terminal: keys go in, the screen is read. tmux's own where it is there, and an emulator behind a pty."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pexpect
import pyte
import pytest

WITHIN = 60.0  # seconds after which a test gives up waiting for what should be on the screen

HAS_TMUX = shutil.which("tmux") is not None


class Terminal:
    """The screen of one command."""

    def screen(self) -> str:
        raise NotImplementedError

    def keys(self, *keys: str) -> None:
        """Single characters; 'C-c' is Ctrl-C."""
        raise NotImplementedError

    def resize(self, columns: int, rows: int) -> None:
        raise NotImplementedError

    def pid(self) -> int:
        """Of the command."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """The terminal goes, as with a broken ssh connection."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def until(self, enough: str | Callable[[str], bool]) -> str:
        """Wait for words, or for a screen that is `enough`; returns it."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            text = self.screen()
            if enough in text if isinstance(enough, str) else enough(text):
                return text
            time.sleep(0.05)
        return pytest.fail(f"not within {WITHIN} s on the screen:\n{text}")


class Tmux(Terminal):
    """A tmux server of its own, which shows the command's screen also after its end."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path, size: tuple[int, int]) -> None:
        self._socket = folder / "tmux"
        columns, rows = size
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        line = f"exec env {settings} {shlex.join(command)}"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "sleep 1000")
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("respawn-pane", "-k", line)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", str(self._socket), *arguments], check=True, capture_output=True, text=True, timeout=20
        )
        return done.stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def pid(self) -> int:
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def hang_up(self) -> None:
        self._tmux("kill-pane")

    def close(self) -> None:
        if self._socket.exists():
            with suppress(subprocess.CalledProcessError):  # gone with its last pane
                self._tmux("kill-server")


class Emulator(Terminal):
    """A pty, and what a VT100 would make of what comes out of it. written: bytes so far."""

    def __init__(self, command: list[str], environment: Mapping[str, str], _: Path, size: tuple[int, int]) -> None:
        columns, rows = size
        everything = {**os.environ, "TERM": "xterm-256color", **environment}
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._child = pexpect.spawn(command[0], command[1:], env=everything, dimensions=(rows, columns), timeout=WITHIN)
        self.written = 0

    def screen(self) -> str:
        try:
            while True:
                data = self._child.read_nonblocking(2**16, timeout=0)
                self.written += len(data)
                self._stream.feed(data)
        except (pexpect.TIMEOUT, pexpect.EOF):
            pass
        return "\n".join(self._screen.display)

    def keys(self, *keys: str) -> None:
        for key in keys:
            self._child.send(chr(ord(key[2:].upper()) - 64) if key.startswith("C-") else key)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    def pid(self) -> int:
        return int(self._child.pid)

    def hang_up(self) -> None:
        with Path(os.devnull).open("rb+") as nothing:
            os.dup2(nothing.fileno(), self._child.child_fd)

    def close(self) -> None:
        self._child.kill(signal.SIGKILL)
        self._child.close()
