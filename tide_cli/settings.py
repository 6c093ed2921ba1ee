"""The settings of an appliance: a flag, else TIDE_* in the environment, else the settings file, else the default.

The file is `--config FILE`, `$TIDE_CONFIG` or `~/.config/tide/tide.toml`. Each field's description is
its documentation: `tide config` lists name, value, origin and description.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tide_cli.errors import UsageError
from tide_cli.paths import Paths, config_file, default_cache_dir, default_state_dir

# Variables of TIDE's that are no settings: the settings file, what children inherit, the installer's, the tests'.
_OTHER_VARIABLES = {
    "TIDE_CONFIG",
    "TIDE_APPLIANCE",
    "TIDE_CHILD",
    "TIDE_ENGINE_CONFIG",
    "TIDE_TORCH_INDEX",
    "TIDE_WORKLOADS",
    "TIDE_TEST_SAMPLES",
    "TIDE_TEST_ROUNDS",
}

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate(("", "k", "m", "g", "t")) if unit}


def parse_size(text: str | int) -> int:
    """'512MiB', '2G', '1048576' -> bytes. Raises ValueError on anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", str(text).strip().lower())
    if not match or match[2] == "i":
        raise ValueError(f"{text!r} is not a size; write for example 512MiB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2]])


class Settings(BaseSettings):
    """Everything a user can choose. Frozen: a running appliance keeps what it was started with."""

    model_config = SettingsConfigDict(env_prefix="TIDE_", env_ignore_empty=True, frozen=True, extra="forbid")

    # where
    state_dir: Path = Field(default_factory=default_state_dir, description="folder of this appliance")
    cache_dir: Path = Field(default_factory=default_cache_dir, description="converted targets, shared by appliances")
    host: str = Field("127.0.0.1", description="address the OpenAI-compatible server listens on")
    port: int = Field(30000, ge=1, le=65535, description="port the OpenAI-compatible server listens on")

    # what is served
    target: str = Field("smollm2-135m", description="known target, checkpoint folder or hub id")
    draft: str | None = Field(None, description="EAGLE3 draft folder or hub id; none: the target's own, or a fresh one")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="precision the target is served in")
    context_length: int | None = Field(None, ge=64, description="longest sequence; none: the target's own")
    max_running_requests: int = Field(8, ge=1, le=4096, description="requests decoded together at most")
    max_total_tokens: int | None = Field(None, ge=256, description="tokens in the KV cache; none: chosen by the plan")
    draft_steps: int = Field(3, ge=1, le=8, description="tokens the draft proposes for each verify step, at most")
    sglang_arguments: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="handed on to SGLang behind TIDE's own; as a list, or as one text split as a shell would"
    )
    speculation: Literal["auto", "on", "off"] | Annotated[int, Field(ge=1, le=8)] = Field(
        "auto",
        description="auto: 0 to draft_steps steps, whatever pays in each round; on: always draft_steps; "
        "a number: always so many; off: plain decoding, no draft, no capture, no training",
    )
    speculation_margin: float = Field(
        0.02, ge=0, lt=1, description="part by which another number of draft steps must be faster to be taken"
    )

    # devices
    gpus: str | None = Field(None, description="GPUs that may be used, e.g. 0-3, or 'cpu'; none: all of them")
    serve_gpus: str | None = Field(None, description="GPUs of the engine, e.g. 0,1; none: chosen by the plan")
    train_gpus: str | None = Field(None, description="GPU of the trainer, or 'cpu'; none: chosen by the plan")
    tp: int | None = Field(
        None, ge=1, le=1024, description="GPUs one copy of the target is spread over; none: by the plan"
    )
    serve_cores: str | None = Field(None, description="CPU cores of the engine, e.g. 0-3; none: chosen by the plan")
    train_cores: str | None = Field(None, description="CPU cores of the trainer; none: chosen by the plan")

    # spool
    capture: bool = Field(True, description="store the target's hidden states of the traffic in the spool")
    spool_size: int | None = Field(None, description="bytes of the ring; none: a tenth of free disk, at most 64 GiB")
    max_sample_tokens: int = Field(2048, ge=16, description="longer sequences are cut to this many tokens")
    retention_hours: float | None = Field(
        None, gt=0, description="older samples are erased; none: they stay until newer ones need the space"
    )
    capture_sample_rate: float = Field(1.0, ge=0, le=1, description="share of the requests that is stored, 0 to 1")
    reservoir_size: int = Field(256 * 2**20, ge=0, description="bytes kept of old samples, for replay")

    # training and gate
    training: bool = Field(True, description="off: serve and capture only")
    cycle_tokens: int = Field(6000, ge=1, description="new stored tokens that start a training cycle")
    cycle_every: float | None = Field(
        None, gt=0, description="seconds after which a quarter of cycle_tokens starts a cycle; none: only tokens do"
    )
    cycle_seconds: float = Field(90.0, gt=0, description="training time of one cycle, the gate not included")
    learning_rate: float = Field(1e-3, gt=0, description="constant rate after a short warm-up")
    batch_tokens: int = Field(512, ge=16, description="tokens in one optimiser step")
    replay_share: float = Field(1 / 3, ge=0, lt=1, description="part of a batch drawn from old samples")
    held_out_share: float = Field(0.2, gt=0, lt=0.9, description="part of the samples kept out of training")
    gate_samples: int = Field(48, ge=2, description="held-out recent samples the gate walks, at most")
    gate_margin: float = Field(0.02, ge=0, description="acceptance length a candidate must gain, at the lower bound")
    gate_confidence: float = Field(0.95, gt=0.5, lt=1, description="one-sided confidence of the gate's lower bound")
    gate_floor: float = Field(0.10, ge=0, description="acceptance length a candidate may lose on old samples")
    drift_epsilon: float = Field(0.10, gt=0, description="fall of live acceptance length that starts a cycle at once")
    draft_pool: bool = Field(True, description="on drift, first try the versions that were kept, then train")
    rollback_margin: float = Field(
        0.05, ge=0, description="live acceptance length a new draft may lack before it is taken back"
    )
    seed: int = Field(0, ge=0, description="seed of batches, splits and the gate's bootstrap")

    # supervisor
    start_timeout: float = Field(1800.0, gt=0, description="seconds until the engine must have given a first token")
    hang_timeout: float = Field(120.0, gt=0, description="seconds without a token after which the engine is restarted")
    restart_limit: int = Field(5, ge=1, description="failures in a row after which a child is not started again")
    stop_timeout: float = Field(20.0, gt=0, description="seconds a child has to end before it is killed")

    @field_validator("spool_size", "reservoir_size", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        return value if value is None else parse_size(value)

    @field_validator("sglang_arguments", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return shlex.split(value) if isinstance(value, str) else value

    @field_validator("speculation", mode="before")
    @classmethod
    def _speculation(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "auto" if value else "off"
        words = {"true": "auto", "false": "off"}
        return words.get(value.lower(), int(value) if value.isdecimal() else value) if isinstance(value, str) else value

    @field_validator("state_dir", "cache_dir", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str) and (not value or "\0" in value):
            raise ValueError("it names no folder")
        return value

    @field_validator("state_dir", "cache_dir", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @property
    def speculates(self) -> bool:
        """Whether there is a draft at all."""
        return self.speculation != "off"

    @property
    def paths(self) -> Paths:
        return Paths.under(self.state_dir, self.cache_dir)


def load_settings(flags: dict[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Settings from flags (None values count as absent), environment, file and defaults.

    Raises UsageError, naming the setting, for an unreadable file, an unknown name or a wrong value.
    """
    flags = {name: value for name, value in (flags or {}).items() if value is not None}
    in_file = _read_file(config)
    from_environment = {n for n in Settings.model_fields if f"TIDE_{n.upper()}" in _environment_names()}
    # pydantic-settings ranks the environment below init arguments; the file must lose against it
    merged = {name: value for name, value in in_file.items() if name not in from_environment} | flags
    try:
        return Settings(**merged)
    except ValidationError as error:
        raise _as_usage_error(error, flags, from_environment, config_file(config)) from None


def unknown_variables() -> list[str]:
    """Names in the environment that look like settings of TIDE's but are none: misspelt ones, most likely."""
    known = {f"TIDE_{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    return sorted(name for name in os.environ if name.startswith("TIDE_") and name not in known)


def _environment_names() -> set[str]:
    return {name.upper() for name in os.environ}


def _read_file(config: Path | None) -> dict[str, Any]:
    path = config_file(config)
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot read the settings file {path}", why=reason, remedy="mend it or pass --config FILE"
        ) from None


def _as_usage_error(
    error: ValidationError, flags: dict[str, Any], from_environment: set[str], file: Path | None
) -> UsageError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "?"
    reason = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return UsageError(f"unknown setting {name!r} in {file}", remedy="`tide config` lists the settings")
    if name in flags:
        where = "--" + name.replace("_", "-")
    elif name in from_environment:
        where = f"TIDE_{name.upper()}"
    else:
        where = f"{name} in {file}"
    return UsageError(
        f"{where}: {first.get('input')!r} is not accepted", why=reason, remedy="`tide config` explains each setting"
    )
