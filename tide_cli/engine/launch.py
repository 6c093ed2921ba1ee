"""How SGLang is started: its command line and the environment on top of the partition's."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tide_cli.drafts.store import DraftStore
from tide_cli.engine import architectures
from tide_cli.engine.plugin.config import ENVIRONMENT_VARIABLE, EngineConfig
from tide_cli.hardware.plan import Plan
from tide_cli.settings import Settings
from tide_cli.targets import PreparedTarget

STAND_INS = Path(__file__).parent / "cpu" / "stand_ins"

# One prefill step at most, so that a long prompt holds up running requests for a second or two, not for half a minute.
_CPU_PREFILL_TOKENS = 512

_MODEL_PACKAGE = "SGLANG_EXTERNAL_MODEL_PACKAGE"


@dataclass(frozen=True)
class EngineCommand:
    """argv and the variables to add to the environment of one engine start."""

    argv: list[str]
    env: dict[str, str]


def engine_command(
    settings: Settings,
    target: PreparedTarget,
    plan: Plan,
    *,
    served_version: int,
    run: str,
    spool_size: int,
    write: bool = True,
) -> EngineCommand:
    """The engine's command for one start; writes the plugin's configuration file into paths.run.

    served_version: the draft to start with. run: the id stored with each sample. spool_size: bytes of the ring.
    write: False leaves the disk alone, for a command that is only shown.
    """
    paths = settings.paths
    steps = settings.speculation if isinstance(settings.speculation, int) else settings.draft_steps
    config = EngineConfig(
        speculation=settings.speculates,
        capture=settings.speculates and settings.capture,
        cores=plan.serve.cores,
        run=run,
        target=target.name,
        hidden_size=target.hidden_size,
        spool=paths.spool,
        spool_size=spool_size,
        max_sample_tokens=settings.max_sample_tokens,
        held_out_share=settings.held_out_share,
        retention_hours=settings.retention_hours,
        capture_sample_rate=settings.capture_sample_rate,
        drafts=paths.drafts,
        served_version=served_version,
        max_running_requests=settings.max_running_requests,
        draft_steps=steps,
        adaptive=settings.speculation == "auto",
        speculation_margin=settings.speculation_margin,
        profiles=paths.profiles,
    )
    config_file = paths.run / "engine.json"
    if write:
        config.write(config_file)
    on_cpu = plan.serve.device == "cpu"
    argv = [
        *(sys.executable, "-m", "tide_cli.engine.serve"),
        *("--model-path", str(target.folder), "--served-model-name", target.name),
        *("--host", settings.host, "--port", str(settings.port)),
        *("--dtype", plan.dtype),
        *("--tp-size", str(plan.tensor_parallel)),
        *("--max-running-requests", str(settings.max_running_requests)),
        # TIDE asks for a first token itself; SGLang's own warm-up would be captured as traffic
        "--skip-server-warmup",
        "--enable-metrics",
        "--sleep-on-idle",
        # a line for each request, TIDE's own looks at /metrics included, would bury everything else
        *("--log-level-http", "warning"),
        *target.sglang_arguments,
    ]
    if settings.context_length:
        argv += ["--context-length", str(settings.context_length)]
    if plan.max_total_tokens:
        argv += ["--max-total-tokens", str(plan.max_total_tokens)]
    if plan.mem_fraction_static:
        argv += ["--mem-fraction-static", f"{plan.mem_fraction_static:.3f}"]
    if plan.prefill_tokens:
        argv += ["--chunked-prefill-size", str(plan.prefill_tokens)]
    if on_cpu:
        argv += ["--device", "cpu", "--attention-backend", "torch_native"]
        argv += ["--chunked-prefill-size", str(_CPU_PREFILL_TOKENS)]
        argv += ["--decode-log-interval", "10"]  # SGLang's figures are renewed with it, and steps are slow here
    if settings.speculates:
        argv += [
            *("--speculative-algorithm", "EAGLE3"),
            *("--speculative-draft-model-path", str(DraftStore(paths.drafts).path(served_version))),
            *("--speculative-num-steps", str(steps)),
            *("--speculative-eagle-topk", "1"),
            *("--speculative-num-draft-tokens", str(steps + 1)),
        ]
    if settings.speculation == "auto":
        # which states SGLang prepares; the choice between them is the plugin's
        candidates = paths.run / "candidate_steps.json"
        if write:
            candidates.write_text(json.dumps({"1": {"candidate_steps": list(range(steps + 1))}}))
        argv += ["--speculative-adaptive", "--speculative-adaptive-config", str(candidates)]
    argv += settings.sglang_arguments  # the later of two wins
    return EngineCommand(argv, _environment(config_file, plan))


def _environment(config_file: Path, plan: Plan) -> dict[str, str]:
    env = {ENVIRONMENT_VARIABLE: str(config_file), "TOKENIZERS_PARALLELISM": "false"}
    if not os.environ.get(_MODEL_PACKAGE):  # the user's own may hold the model that is served
        env[_MODEL_PACKAGE] = architectures.__name__
    if plan.tensor_parallel > 1:
        # the plan reckons with the fullest of the GPUs; SGLang would refuse unequal ones, the trainer's own included
        env["SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"] = "false"
    return env | (cpu_environment() if plan.serve.device == "cpu" else {})


def cpu_environment() -> dict[str, str]:
    """For every process that imports SGLang or SpecForge on a CPU.

    The stand-ins come first on PYTHONPATH. Small functions that either of them decorates with torch.compile run as
    they are: a C++ build of each would stall the first request, and needs a compiler.
    """
    inherited = os.environ.get("PYTHONPATH")
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "PYTHONPATH": os.pathsep.join([str(STAND_INS), *([inherited] if inherited else [])]),
        "TORCHDYNAMO_DISABLE": "1",
    }
