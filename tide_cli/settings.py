"""The settings of an appliance: a flag, else TIDE_* in the environment, else the settings file, else the default.

The file is `--config FILE`, `$TIDE_CONFIG` or `~/.config/tide/tide.toml`. Each field's description is
its documentation: `tide config` lists name, value, origin and description.
"""

from __future__ import annotations

import difflib
import os
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tide_cli.errors import UsageError, reason
from tide_cli.paths import Paths, config_file, default_cache_dir, default_state_dir
from tide_cli.regular_files import read_named
from tide_cli.setting_values import MOST_RUNNING, host_name, parse_size, plain, refusal, shown, takes

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
    *(f"TIDE_EVENT_{name}" for name in ("ID", "TIME", "KIND", "TEXT", "DATA")),  # what on_event is told
}

# Upper bounds of what has no other: more is a slip, and would not fit where the number goes.
_MANY = 2**31 - 1
_LONG = 10**8  # seconds, three years


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
    context_length: int | None = Field(None, ge=64, le=_MANY, description="longest sequence; none: the target's own")
    max_running_requests: int = Field(8, ge=1, le=MOST_RUNNING, description="requests decoded together at most")
    max_total_tokens: int | None = Field(
        None, ge=256, le=_MANY, description="tokens in the KV cache; none: chosen by the plan"
    )
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
    train_gpus: str | None = Field(None, description="GPUs of the trainer, or 'cpu'; none: chosen by the plan")
    tp: int | None = Field(
        None, ge=1, le=1024, description="GPUs one copy of the target is spread over; none: by the plan"
    )
    serve_cores: str | None = Field(None, description="CPU cores of the engine, e.g. 0-3; none: chosen by the plan")
    train_cores: str | None = Field(None, description="CPU cores of the trainer; none: chosen by the plan")

    # spool
    capture: bool = Field(True, description="store the target's hidden states of the traffic in the spool")
    spool_size: int | None = Field(None, description="bytes of the ring; none: a tenth of free disk, at most 64 GiB")
    max_sample_tokens: int = Field(2048, ge=16, le=_MANY, description="longer sequences are cut to this many tokens")
    retention_hours: float | None = Field(
        None, gt=0, le=_LONG, description="older samples are erased; none: they stay until newer ones need the space"
    )
    capture_sample_rate: float = Field(1.0, ge=0, le=1, description="share of the requests that is stored, 0 to 1")
    reservoir_size: int | None = Field(
        None,
        description="bytes of old samples kept beside the ring, for replay; none: room for 240 samples of half "
        "max_sample_tokens, at most an eighth of the ring",
    )

    # training and gate
    training: bool = Field(True, description="off: serve and capture only")
    cycle_tokens: int = Field(6000, ge=1, le=_MANY, description="new stored tokens that start a training cycle")
    cycle_every: float | None = Field(
        None,
        gt=0,
        le=_LONG,
        description="seconds after which a quarter of cycle_tokens starts a cycle; none: only tokens do",
    )
    cycle_seconds: float = Field(90.0, gt=0, le=_LONG, description="training time of one cycle, the gate not included")
    train_tokens: int | None = Field(
        None,
        ge=1,
        le=_MANY,
        description="tokens that one cycle trains on at most, each time that one is used; none: cycle_seconds alone "
        "bounds it",
    )
    early_stop: bool = Field(
        True,
        description="end a cycle where looks at a few samples, held back from it, show no progress, and keep the best "
        "weights; where there are samples and tokens enough for that",
    )
    train_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="part of the time that training takes at most where it shares a GPU with the engine",
    )
    learning_rate: float = Field(1e-3, gt=0, le=1, description="constant rate after a short warm-up")
    batch_tokens: int = Field(512, ge=16, le=_MANY, description="tokens of each training GPU in one optimiser step")
    replay_share: float = Field(1 / 3, ge=0, lt=1, description="part of a batch drawn from old samples")
    held_out_share: float = Field(0.2, gt=0, lt=0.9, description="part of the samples kept out of training")
    gate_samples: int = Field(48, ge=4, le=_MANY, description="newest held-out samples the gate walks, at most")
    gate_margin: float = Field(0.02, ge=0, le=10, description="acceptance length a candidate must gain, chance apart")
    gate_confidence: float = Field(0.95, gt=0.5, lt=1, description="one-sided confidence of the gate's lower bound")
    gate_floor: float = Field(
        0.10, ge=0, le=10, description="acceptance length a candidate may lose on old samples, chance apart"
    )
    gate_domain_floor: float = Field(
        0.10,
        ge=0,
        le=10,
        description="acceptance length a candidate may lose on any one of the domains that clients name, chance apart",
    )
    vocab_coverage: float = Field(
        0.97,
        ge=0,
        le=1,
        description="share of the target's recent tokens that the draft's vocabulary must hold, else the next cycle "
        "trains with another vocabulary; 0: never",
    )
    drift_epsilon: float = Field(
        0.10, gt=0, le=10, description="fall of live acceptance length that starts a cycle at once"
    )
    draft_pool: bool = Field(True, description="on drift, first try the versions that were kept, then train")
    keep_drafts: int = Field(
        16,
        ge=1,
        le=_MANY,
        description="versions of the draft that are kept, not counting those for `tide train replay`; "
        "never removed are those served, pinned or a way back",
    )
    rollback_margin: float = Field(
        0.05, ge=0, le=10, description="live acceptance length a new draft may lack before it is taken back"
    )
    seed: int = Field(
        0,
        ge=0,
        le=2**32 - 1,
        description="seed of the first draft, the batches, the reservoir and the gate's bootstrap",
    )

    # supervisor
    on_event: str | None = Field(
        None, min_length=1, description="shell command that is run for each event, with TIDE_EVENT_* in its environment"
    )
    metrics_port: int | None = Field(
        None, ge=1, le=65535, description="port on 127.0.0.1 where Prometheus reads TIDE's metrics; none: no such port"
    )
    start_timeout: float = Field(
        1800.0, gt=0, le=_LONG, description="seconds until the engine must have given a first token"
    )
    hang_timeout: float = Field(
        120.0, gt=0, le=_LONG, description="seconds without a token after which the engine is restarted"
    )
    train_hang_timeout: float = Field(
        600.0, gt=0, le=_LONG, description="seconds without a step of a working trainer after which it is restarted"
    )
    restart_limit: int = Field(
        5, ge=1, le=_MANY, description="failures in a row after which a child is not started again"
    )
    stop_timeout: float = Field(20.0, gt=0, le=_LONG, description="seconds a child has to end before it is killed")

    @field_validator("*", mode="before")
    @classmethod
    def _one_of_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        match info.field_name:
            case "spool_size" | "reservoir_size":
                return value if value is None else _size(value)
            case "sglang_arguments":
                return _words(value)
            case "speculation":
                return _speculation(value)
        return plain(value, field)

    @field_validator("host", mode="after")
    @classmethod
    def _host(cls, value: str) -> str:
        return host_name(value)

    @property
    def speculates(self) -> bool:
        """Whether there is a draft at all."""
        return self.speculation != "off"

    @property
    def paths(self) -> Paths:
        return Paths.under(self.state_dir, self.cache_dir)


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("it takes bytes, or a size such as 512MiB or 2GiB")
    return parse_size(value)


def _words(value: Any) -> Any:
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError("it takes a list of texts, or one text that is split as a shell would")
    if strange := [word for word in words if not word.isprintable()]:
        raise ValueError(f"{shown(strange[0])} has a character that cannot be printed")
    return tuple(words)


def _speculation(value: Any) -> Any:
    if isinstance(value, bool):
        return "auto" if value else "off"
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    number = text.isascii() and text.isdecimal() and len(text) < 4
    return {"true": "auto", "false": "off"}.get(text, int(text) if number else text)


def load_settings(flags: dict[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Settings from flags (None values count as absent), environment, file and defaults.

    Raises UsageError, naming the setting and where its value comes from, for an unreadable file, an unknown name or a
    wrong value.
    """
    return load_with_origins(flags, config)[0]


def load_with_origins(
    flags: dict[str, Any] | None = None, config: Path | None = None
) -> tuple[Settings, dict[str, str]]:
    """As `load_settings`; also where each value comes from: 'flag', 'environment', 'file' or 'default'."""
    flags = {name: value for name, value in (flags or {}).items() if value is not None}
    in_file = _read_file(config)
    from_environment = {name for name in Settings.model_fields if _in_environment(name)}
    # pydantic-settings ranks the environment below init arguments; the file must lose against it
    merged = {name: value for name, value in in_file.items() if name not in from_environment} | flags
    origins = dict.fromkeys(Settings.model_fields, "default") | dict.fromkeys(in_file, "file")
    origins |= dict.fromkeys(from_environment, "environment") | dict.fromkeys(flags, "flag")
    try:
        return Settings(**merged), origins
    except ValidationError as error:
        raise _as_usage_error(error, origins, config_file(config)) from None


def unknown_variables() -> list[str]:
    """Names in the environment that look like settings of TIDE's but are none: misspelt ones, most likely."""
    known = {f"TIDE_{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    return sorted(name for name in os.environ if name.startswith("TIDE_") and name not in known)


def _in_environment(name: str) -> bool:
    """Whether its variable is set; an empty one counts as not set."""
    return any(variable.upper() == f"TIDE_{name.upper()}" and value for variable, value in os.environ.items())


def _read_file(config: Path | None) -> dict[str, Any]:
    path = config_file(config)
    if path is None:
        return {}
    try:
        return tomllib.loads(read_named(path))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"cannot read the settings file {path}", why=reason(error), remedy="mend it or pass --config FILE"
        ) from None


def _as_usage_error(error: ValidationError, origins: dict[str, str], file: Path | None) -> UsageError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "?"
    field = Settings.model_fields.get(name)
    if field is None:
        near = difflib.get_close_matches(name, Settings.model_fields, n=1)
        remedy = f"did you mean {near[0]}?" if near else "`tide config --config /dev/null` lists the settings"
        return UsageError(f"unknown setting {shown(name)} in {file}", remedy=remedy)
    why = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] != "value_error":
        why = f"it takes {takes(field)}"
    value = first["input"]
    flag, variable = "--" + name.replace("_", "-"), f"TIDE_{name.upper()}"
    match origins[name]:
        case "flag":
            return refusal(flag, value, why, f"{name}: {field.description}")
        case "environment":
            return refusal(variable, value, why, f"unset it, or set it anew: {field.description}")
        case "default":
            remedy = f"pass {flag}; the default follows from XDG_{name.removesuffix('_dir').upper()}_HOME, else HOME"
            return refusal(f"the default of {name}", str(value), why, remedy)
    return refusal(f"{name} in {file}", value, why, f"mend that line: {field.description}")
