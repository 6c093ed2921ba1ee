"""Where a start of SGLang stands, and how long each phase took, from the lines of its log.

SGLang stamps its lines in local time, to the second: a phase is known to about a second. The texts are those of
SGLang 0.5.23; the first rank's count, the others do the same at the same time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

# Phase by phase in SGLang's order; target and draft each load weights and allocate memory, so two phases may alternate.
PHASES = {
    "imports": "loading SGLang",
    "devices": "preparing devices",
    "weights": "loading weights",
    "kv_cache": "KV cache",
    "graphs": "graphs",
    "warm_up": "warm-up",
    "first_token": "first token",
}
_STAMPED = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)([^\]]*)\] (.*)")
_OTHER_RANK = re.compile(r"\b[A-Z]{2,}[1-9]")  # TP1, PP2, DP3
_ENTERED = (
    (re.compile(r"Init parallel begin"), "devices"),
    (re.compile(r"Load weight begin"), "weights"),
    (re.compile(r"Load weight end|KV Cache is allocated"), "kv_cache"),
    (re.compile(r"Capture .*begin"), "graphs"),
    (re.compile(r"max_total_num_tokens="), "warm_up"),
    (re.compile(r"INFO: +Uvicorn running on|The server is fired up"), "first_token"),
)


class StartPhases:
    """One start of the engine. begun: unix seconds at which its process was started."""

    def __init__(self, begun: float) -> None:
        self.phase = next(iter(PHASES))
        self._since = begun
        self._seconds: dict[str, float] = {}

    def read(self, lines: Iterable[str]) -> None:
        """Take note of further lines of the log."""
        for line in lines:
            stamped = _STAMPED.match(line)
            if not stamped or _OTHER_RANK.search(stamped[2]):
                continue
            for pattern, phase in _ENTERED:
                if pattern.match(stamped[3]):
                    self._enter(phase, time.mktime(time.strptime(stamped[1], "%Y-%m-%d %H:%M:%S")))
                    break

    def present_seconds(self, now: float) -> float:
        """How long the present phase has lasted so far, its former turns included. now: unix seconds."""
        return self._seconds.get(self.phase, 0.0) + max(0.0, now - self._since)

    def seconds(self, now: float) -> dict[str, float]:
        """Phase to seconds, in SGLang's order, for those that were entered. now: unix seconds."""
        spent = self._seconds | {self.phase: self.present_seconds(now)}
        return {phase: round(spent[phase], 1) for phase in PHASES if phase in spent}

    def _enter(self, phase: str, moment: float) -> None:
        if phase == self.phase:
            return
        # a stamp without its fraction may lie before the start, and a clock may be set back
        moment = max(moment, self._since)
        self._seconds[self.phase] = self.present_seconds(moment)
        self.phase, self._since = phase, moment


def phase_words(seconds: Mapping[str, float]) -> str:
    """'loading SGLang 16 s, loading weights 5 s'; phases below half a second are left out."""
    return ", ".join(f"{PHASES.get(phase, phase)} {took:.0f} s" for phase, took in seconds.items() if took >= 0.5)
