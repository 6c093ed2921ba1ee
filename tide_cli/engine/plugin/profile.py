"""The measurement of round times inside the scheduler, and the file in which it is kept.

While a measurement is on, each decode round takes another number of draft steps than the one before, so that all
numbers see the same load and the same neighbours. A round lasts from its start to the start of the next one: that
includes what the scheduler does between two forwards, and only pairs of rounds with nothing else between them count.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tide_cli.engine.plugin.round_times import RoundTimes
from tide_cli.json_files import read_object

BATCHES = (1, 2, 4, 8, 16, 32, 64)  # that are asked for, as far as so many requests may run
PARTS = ("draft", "verify", "extend")
_LEAST_ROUNDS = 3  # of a batch size and number of steps, for a median
_MOST_ROUNDS = 4000  # after which a measurement ends though nobody asked: whoever began it has gone away


@dataclass(frozen=True)
class Conditions:
    """What round times depend on; the name of the file they are kept in."""

    target: str
    device: str  # name of the processor, with the number of threads or of GPUs
    dtype: str
    sglang: str

    def file(self, folder: Path) -> Path:
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return folder / f"{digest[:16]}.json"


@dataclass(frozen=True)
class Profile:
    """Medians, in seconds. cells: of a whole round; parts: of the draft's steps (D), the target's verification (T) and
    the draft's catching up (extend), where the device computes as it is called (a CPU). measured: unix seconds.
    kept: batch sizes whose figures are those of an earlier measurement."""

    conditions: Conditions
    measured: float
    cells: Mapping[tuple[int, int], float]
    parts: Mapping[tuple[int, int], Mapping[str, float]]
    kept: tuple[int, ...] = ()

    def over(self, former: Profile | None) -> Profile:
        """This one, with the former's figures for those of BATCHES that it lacks: others were never measured alone."""
        most = max(steps for _, steps in self.cells)
        kept = {batch for batch, steps in former.cells if steps == most and batch in BATCHES} if former else set()
        kept -= {batch for batch, _ in self.cells}
        keys = [(batch, steps) for batch in kept for steps in range(most + 1)]
        if former is None or not keys:
            return self
        cells = {**{key: former.cells[key] for key in keys}, **self.cells}
        parts = {**{key: former.parts.get(key, {}) for key in keys}, **self.parts}
        return replace(self, cells=cells, parts=parts, kept=tuple(sorted(kept)))

    def to_json(self) -> dict[str, object]:
        rounds = [
            {"batch": batch, "steps": steps, "seconds": seconds, **self.parts.get((batch, steps), {})}
            for (batch, steps), seconds in sorted(self.cells.items())
        ]
        measured = {"conditions": asdict(self.conditions), "measured": self.measured, "kept": list(self.kept)}
        return measured | {"rounds": rounds}

    @classmethod
    def from_json(cls, values: Mapping) -> Profile:
        rounds = {(row["batch"], row["steps"]): row for row in values["rounds"]}
        return cls(
            Conditions(**values["conditions"]),
            values["measured"],
            {key: row["seconds"] for key, row in rounds.items()},
            {key: {part: row[part] for part in PARTS if part in row} for key, row in rounds.items()},
            tuple(values.get("kept", ())),
        )

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = self.conditions.file(folder)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(self.to_json(), indent=1))
        draft.replace(file)


def load_profile(folder: Path, conditions: Conditions, most_steps: int) -> Profile | None:
    """What was measured under these conditions for at least `most_steps`; None where nothing usable is kept."""
    try:
        profile = Profile.from_json(read_object(conditions.file(folder)))
        enough = profile.conditions == conditions and RoundTimes(profile.cells).most_steps >= most_steps
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return profile if enough else None


def processor_name() -> str:
    """As the kernel gives it; 'cpu' where it does not."""
    try:
        with Path("/proc/cpuinfo").open() as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "cpu")
    except OSError:
        return "cpu"


class Measurement:
    """One measurement under way: steps for the next round, and the durations so far."""

    def __init__(self, most_steps: int) -> None:
        self._most_steps = most_steps
        self._rounds = 0
        self._seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
        self._parts: dict[tuple[int, int, str], list[float]] = defaultdict(list)

    @property
    def overdue(self) -> bool:
        return self._rounds > _MOST_ROUNDS

    def next_steps(self) -> int:
        self._rounds += 1
        return self._rounds % (self._most_steps + 1)

    def add(self, batch: int, steps: int, seconds: float, parts: Mapping[str, float]) -> None:
        """One round, and what each of PARTS took of it: the medians of both are of the same rounds."""
        self._seconds[batch, steps].append(seconds)
        for part, taken in parts.items():
            self._parts[batch, steps, part].append(taken)

    def result(self, conditions: Conditions, clock: Callable[[], float] = time.time) -> Profile | None:
        """Medians of the batch sizes that were seen often enough at every number of steps; None where none was."""
        every = range(self._most_steps + 1)
        batches = [
            batch
            for batch in sorted({batch for batch, _ in self._seconds})
            if all(len(self._seconds.get((batch, steps), ())) >= _LEAST_ROUNDS for steps in every)
        ]
        if not batches:
            return None
        keys = [(batch, steps) for batch in batches for steps in every]
        cells = {key: statistics.median(self._seconds[key]) for key in keys}
        parts = {
            key: {part: statistics.median(found) for part in PARTS if (found := self._parts.get((*key, part)))}
            for key in keys
        }
        return Profile(conditions, clock(), cells, parts)
