"""What the launcher tells the plugin: one JSON file, named by TIDE_ENGINE_CONFIG in the engine's environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

ENVIRONMENT_VARIABLE = "TIDE_ENGINE_CONFIG"


@dataclass(frozen=True)
class EngineConfig:
    """Everything the plugin needs inside SGLang. No torch, so that the launcher can write it."""

    speculation: bool  # False: plain decoding, only the CPU support is installed
    capture: bool  # store hidden states of the traffic
    cores: tuple[int, ...]  # on which the scheduler runs; SGLang may start on more
    run: str  # id of this engine start, stored with each sample
    target: str  # name of the target, stored in the spool's header
    hidden_size: int
    spool: Path
    spool_size: int  # bytes
    max_sample_tokens: int
    held_out_share: float
    retention_hours: float | None  # older samples are given up and wiped; None: they stay until they are overwritten
    capture_sample_rate: float  # share of the requests that is stored
    drafts: Path
    served_version: int  # the draft the engine starts with
    max_running_requests: int
    draft_steps: int  # the number of draft steps, the largest one where it is chosen for each round
    adaptive: bool  # chosen for each round by the policy
    speculation_margin: float
    profiles: Path  # folder of measured round times

    def write(self, path: Path) -> None:
        fields = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        path.write_text(json.dumps(fields, indent=1))

    @classmethod
    def read(cls, path: Path) -> EngineConfig:
        fields = json.loads(path.read_text())
        folders = {name: Path(fields[name]) for name in ("spool", "drafts", "profiles")}
        return cls(**{**fields, **folders, "cores": tuple(fields["cores"])})

    @classmethod
    def from_environment(cls) -> EngineConfig | None:
        """The configuration of this engine process; None in an SGLang that TIDE did not start."""
        path = os.environ.get(ENVIRONMENT_VARIABLE)
        return cls.read(Path(path)) if path else None
