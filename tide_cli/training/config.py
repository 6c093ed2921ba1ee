"""What the trainer process is told at its start: one JSON file, written by the supervisor. No torch here."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from tide_cli.errors import TideError, reason
from tide_cli.json_files import checked, json_object

_PATHS = ("target", "spool", "drafts", "state")


@dataclass(frozen=True)
class TrainingConfig:
    """Paths are absolute folders, sizes bytes, times seconds, lengths tokens; most fields are settings of that name."""

    target: Path  # the target's checkpoint folder
    target_name: str
    target_revision: str
    spool: Path
    drafts: Path
    state: Path  # the trainer's own: masters, optimiser, progress
    reservoir_size: int
    device: str  # 'cpu' or 'cuda'
    threads: int
    dtype: str  # 'float32' or 'bfloat16': what drafts are published in
    draft_vocab_size: int
    ttt_length: int  # depths of the draft's own chain that are trained
    learning_rate: float
    batch_tokens: int  # of each process in one optimiser step
    max_sample_tokens: int
    cycle_seconds: float
    replay_share: float
    gate_samples: int
    gate_margin: float
    gate_confidence: float
    gate_floor: float
    draft_steps: int  # drafts per round in the walk, as in the engine
    seed: int
    gate_domain_floor: float = 0.10
    vocab_coverage: float = 0.0  # share of the recent tokens that the draft's vocabulary must hold; 0: it stays
    train_tokens: int | None = None  # that a cycle trains on at most; None: as many as its time allows
    early_stop: bool = False  # a cycle ends where it makes no progress, and keeps the best weights
    retention_hours: float | None = None  # old samples older than this are erased; None: kept as long as they fit
    processes: int = 1  # that train together, one a GPU; on a CPU each takes `threads`
    process_timeout: float = 300.0  # in which each of them must have done its share of a step
    memory: int = 0  # of a GPU that serves too, besides its context, that this process may take; 0: no bound

    def to_json(self) -> str:
        """One JSON object, a key for each field."""
        values = {name: str(value) if name in _PATHS else value for name, value in asdict(self).items()}
        return json.dumps(values, indent=1)

    @classmethod
    def from_json(cls, text: str) -> TrainingConfig:
        """The inverse of `to_json`. Raises TideError, naming the keys, for missing or unknown ones.

        A field that has a default may be missing: it is younger than the record of a cycle.
        """
        try:
            values = json_object(text)
        except ValueError as error:
            raise TideError("the trainer's configuration cannot be read", why=reason(error)) from None
        known = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        if wrong := sorted((values.keys() - known) | (needed - values.keys())):
            raise TideError(f"the trainer's configuration has missing or unknown keys: {', '.join(wrong)}")
        try:
            return checked(cls, values)
        except ValueError as error:
            raise TideError("the trainer's configuration cannot be read", why=reason(error)) from None
