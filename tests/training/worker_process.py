"""A trainer process of its own, spoken to as the supervisor does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tide_cli.training.config import TrainingConfig

Event = dict[str, Any]


class Worker:
    def __init__(self, config: TrainingConfig, folder: Path) -> None:
        file = folder / "trainer.json"
        file.write_text(config.to_json())
        reading, writing = os.pipe()
        self.log = folder / "trainer.log"
        command = [sys.executable, "-m", "tide_cli.training", "worker", "--config", str(file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--events-fd", str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writing],
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        os.close(writing)
        self._events = os.fdopen(reading, encoding="utf-8")

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def until(self, name: str) -> list[Event]:
        """Events up to and including the first of that name."""
        seen: list[Event] = []
        for line in self._events:
            seen.append(json.loads(line))
            if seen[-1]["event"] == name:
                return seen
            if seen[-1]["event"] == "error":
                break
        raise AssertionError(f"no {name} event; got {seen}; log:\n{self.log.read_text()}")

    def end(self) -> int:
        """Close stdin, as the death of the supervisor does, and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._events.close()
