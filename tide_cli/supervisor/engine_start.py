"""The present start of the engine: its phase and seconds, from the lines that its log has gained."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tide_cli.engine.phases import PHASES, StartPhases

_AT_ONCE = 2**20  # bytes read in one look; a start writes a tenth of that in all


class EngineStart:
    """Follows the log from byte `offset` on. Made at the moment the process is started."""

    def __init__(self, log: Path, offset: int) -> None:
        self._log, self._position = log, offset
        self._phases = StartPhases(time.time())

    def phase(self) -> dict[str, Any]:
        """The present one: name, words, seconds."""
        self._look()
        name = self._phases.phase
        return {"name": name, "words": PHASES[name], "seconds": round(self._phases.present_seconds(time.time()), 1)}

    def seconds(self) -> dict[str, float]:
        """Every phase so far, the present one up to now."""
        self._look()
        return self._phases.seconds(time.time())

    def _look(self) -> None:
        with suppress(OSError), self._log.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._position:
                self._position = 0  # the log was cut
            file.seek(self._position)
            block = file.read(_AT_ONCE)
            # up to the last line that is whole; what is one line all through says nothing about a phase
            whole = block.rfind(b"\n") + 1 or (len(block) if len(block) == _AT_ONCE else 0)
            self._position += whole
            self._phases.read(block[:whole].decode(errors="replace").splitlines())
