"""What went into a training cycle and what came out: one JSON file a cycle, from which it can be run again offline.

cycles/000012.json          the record of cycle 12
cycles/000012.safetensors   the trainer's state when it began, of the newest that did not begin from a version
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tide_cli.adaptation.early_stop import best_look
from tide_cli.drafts.fit import tensors_header
from tide_cli.errors import TideError, reason
from tide_cli.json_files import checked, json_object, read_object

if TYPE_CHECKING:
    from tide_cli.spool.samples import SampleInfo

STATE_FILE = "trainer.safetensors"  # in the trainer's state folder, as CYCLES_FOLDER
CYCLES_FOLDER = "cycles"
_RECORDS = 20  # kept, the newest
_STATES = 2  # each is three times the draft in fp32

Key = tuple[int, int]  # id and checksum of a sample: ids begin anew in a new spool


@dataclass
class CycleRecord:
    """One cycle.

    created: unix seconds. served: the version it was judged against. start: where its weights came from: 'version':
    those of the version `begun`, None for the served one, with the optimiser as new; 'state': the file of this cycle;
    'lost': neither was kept.
    config: the trainer's configuration, as its JSON. vocabulary: ids of the draft's tokens where training changed them.
    steps: the samples of each optimiser step; losses: of each; shares: how many of them each process had, where
    several trained. looked_at: the samples that decided when it ended, and which weights were kept; looks: steps taken
    and acceptance length at each look at them. newest, old: the samples of the gate; gate: its figures,
    None where there was none. weights: digest of all tensors that were kept, None where it was cancelled.
    """

    cycle: int
    created: float
    served: int
    start: Literal["version", "state", "lost"]
    config: dict[str, Any]
    begun: int | None = None
    vocabulary: list[int] | None = None
    steps: list[list[Key]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    shares: list[list[int]] = field(default_factory=list)
    looked_at: list[Key] = field(default_factory=list)
    looks: list[tuple[int, float]] = field(default_factory=list)
    newest: list[Key] = field(default_factory=list)
    old: list[Key] = field(default_factory=list)
    gate: dict[str, Any] | None = None
    weights: str | None = None

    def stepped(self, shares: Sequence[Sequence[SampleInfo]], loss: float) -> None:
        """One more optimiser step. shares: the samples of each process."""
        self.steps.append(keys(chain.from_iterable(shares)))
        self.losses.append(loss)
        if self.config["processes"] > 1:
            self.shares.append([len(share) for share in shares])

    @property
    def kept(self) -> int:
        """Steps that led to the weights that were kept."""
        return self.looks[best_look([length for _, length in self.looks])][0] if self.looks else len(self.steps)

    def samples(self) -> set[Key]:
        """Every sample that the cycle read."""
        return {key for batch in self.steps for key in batch}.union(self.looked_at, self.newest, self.old)

    def write(self, folder: Path) -> None:
        """Into the trainer's state folder; the oldest ones go. A full disk costs the record, not the cycle."""
        cycles = folder / CYCLES_FOLDER
        with suppress(OSError):
            cycles.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = cycles / (_name(self.cycle) + ".new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(asdict(self), file)
            new.replace(cycles / f"{_name(self.cycle)}.json")
            for old in sorted(cycles.glob("*.json"))[:-_RECORDS]:
                old.unlink()

    @classmethod
    def read(cls, folder: Path, cycle: int) -> CycleRecord:
        """TideError where this cycle has no record that can be read."""
        path = folder / CYCLES_FOLDER / f"{_name(cycle)}.json"
        try:
            return checked(cls, read_object(path))
        except FileNotFoundError:
            known = ", ".join(str(number) for number in recorded(folder)) or "none"
            what = f"cycle {cycle} is not recorded in {path.parent}"
            raise TideError(what, why=f"recorded: {known}", remedy="`tide events` tells of each") from None
        except (OSError, ValueError) as error:
            raise TideError(f"cannot read {path}", why=reason(error), remedy="replay another cycle") from None


def recorded(folder: Path) -> list[int]:
    """Numbers of the recorded cycles, ascending."""
    return numbered(folder, "*.json")


def numbered(folder: Path, names: str = "*") -> list[int]:
    """Numbers of the cycles of which there are files of these names, ascending."""
    return sorted(int(path.stem) for path in (folder / CYCLES_FOLDER).glob(names) if path.stem.isdecimal())


def versions_to_replay(folder: Path) -> set[int]:
    """The versions without which a recorded cycle could not be run again that can be now, as far as they decide."""
    needed = set()
    for cycle in recorded(folder):
        with suppress(TideError):
            record = CycleRecord.read(folder, cycle)
            if record.start == "version" or state_file(folder, cycle).exists():
                needed |= {record.served, *([] if record.begun is None else [record.begun])}
    return needed


def parent_in_training(folder: Path) -> int | None:
    """The version that the saved weights in training descend from; None where there are none. No torch."""
    try:
        metadata = tensors_header(folder / STATE_FILE)["__metadata__"]
        parent = json_object(metadata["progress"])["parent"]
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return parent if isinstance(parent, int) else None


def keys(samples: Iterable[SampleInfo]) -> list[Key]:
    return [(info.id, info.checksum) for info in samples]


def state_file(folder: Path, cycle: int) -> Path:
    """Where the state is kept that a cycle began with."""
    return folder / CYCLES_FOLDER / f"{_name(cycle)}.safetensors"


def keep_state(folder: Path, cycle: int, state: Path) -> bool:
    """Keep the file of the trainer's state under the cycle's name, without a copy; whether that was possible."""
    kept = state_file(folder, cycle)
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept.unlink(missing_ok=True)
        os.link(state, kept)  # the next state is another file of that name
        for old in sorted(kept.parent.glob("*.safetensors"))[:-_STATES]:
            old.unlink()
    except OSError:
        return False
    return True


def _name(cycle: int) -> str:
    return f"{cycle:06d}"
