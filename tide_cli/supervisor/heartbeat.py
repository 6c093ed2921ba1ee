"""Is the engine alive? Told by the tokens it gives: its /health may answer while nothing else does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SLEPT = 10.0  # seconds; where waiting for a message or a look takes longer, this process was stopped, or the machine
_QUIET = 20.0  # seconds without a token after which one is asked for, at most


class Heartbeat:
    """Silence of one start of the engine. `ask_token(timeout)` returns once a token came, or raises.

    patience: seconds without a token after which the engine counts as hung, and the longest a question may take.
    """

    def __init__(self, ask_token: Callable[[float], object], patience: float) -> None:
        self._ask_token, self._patience = ask_token, patience
        self._quiet = min(_QUIET, patience / 6)  # several questions fit before the engine is called DEGRADED
        self._tokens: float | None = None
        self._last = time.monotonic()
        self._asking = False

    def silence(self, tokens: float | None) -> float:
        """Seconds since the last sign of life. tokens: given so far, to anybody; None where that cannot be read.

        Where the engine is idle, and so gives none by itself, one is asked for, on a thread of its own.
        """
        now = time.monotonic()
        if tokens is not None and tokens != self._tokens:
            self._tokens, self._last = tokens, now
        if now - self._last >= self._quiet and not self._asking:
            self._asking = True
            threading.Thread(target=self._ask, name="heartbeat", daemon=True).start()
        return now - self._last

    def slept(self) -> None:
        """Whoever asks was stopped for a while, and has not looked."""
        self._last = time.monotonic()

    def _ask(self) -> None:
        try:
            self._ask_token(self._patience)
        except Exception:  # no answer is the answer; a refused connection comes at once and is asked again
            time.sleep(min(1.0, self._quiet))
        else:
            self._last = time.monotonic()
        finally:
            self._asking = False
