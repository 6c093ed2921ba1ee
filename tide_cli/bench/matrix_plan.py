"""From what a user asked for to what a matrix measures, and to the requests that it sends."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tide_cli.bench.drafts import check_modes, choose_drafts
from tide_cli.bench.engines import bench_settings
from tide_cli.bench.matrix import MODES, Load, MatrixPlan
from tide_cli.bench.requests import Request, domain_files, draw, read_requests
from tide_cli.errors import UsageError, reason
from tide_cli.printable import many
from tide_cli.regular_files import check_regular
from tide_cli.settings import Settings
from tide_cli.targets import describe, resolve_target

_ENGINE = {
    *("dtype", "context_length", "max_running_requests", "max_total_tokens", "draft_steps", "sglang_arguments"),
    *("speculation", "speculation_margin", "gpus", "serve_gpus", "train_gpus", "tp", "serve_cores", "train_cores"),
    *("capture", "capture_sample_rate", "max_sample_tokens", "spool_size", "reservoir_size"),
}


def make_plan(
    settings: Settings,
    *,
    workload: Path,
    domains: Sequence[str] | None,
    modes: Sequence[str] | None,
    static: str | None,
    adapted: str | None,
    loads: Sequence[Load],
    rounds: int,
    requests: int,
    max_tokens: int,
    temperature: float,
    seed: int,
    timeout: float,
    config: Path | None,
) -> MatrixPlan:
    """settings: of the appliance whose target and drafts are measured; config: the settings file of the engines, None
    for the default one. Raises UsageError or TideError.
    """
    drafts = choose_drafts(settings.paths, static, adapted)
    chosen = check_modes(modes, MODES, drafts, settings.paths.state)
    plan = MatrixPlan(
        target=settings.target,
        target_revision=_revision(settings),
        modes=chosen,
        drafts={mode: drafts[mode] for mode in chosen if mode in drafts},
        loads=tuple(loads),
        rounds=rounds,
        workload={"path": str(workload.expanduser().absolute()), "domains": list(domains or ()) or None},
        requests=requests,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        timeout=timeout,
        settings={},
    )
    plan.workload["sha256"] = _digest(plan)
    plan.settings.update({mode: recorded(mode_settings(settings.paths.state, mode, plan, config)) for mode in chosen})
    return replace(plan, requests=len(_drawn(plan)))


def mode_settings(folder: Path, mode: str, plan: MatrixPlan, config: Path | None) -> Settings:
    """The user's own settings, and what makes the mode. Nothing is trained. Raises UsageError.

    plain: no draft; static: the draft as it stands, always used, and no capture; adapted: likewise, captured as in
    service; policy: the same draft where it pays.
    """
    chosen: dict[str, Any] = {"target": plan.target, "training": False, "capture": mode in ("adapted", "policy")}
    chosen["speculation"] = {"plain": "off", "policy": "auto"}.get(mode, "on")
    settings = bench_settings(folder / mode, config, **chosen)
    # what the user's settings say of a draft is not what is compared
    draft = plan.drafts.get(mode, {}).get("draft")
    most = max((load.concurrency or 0 for load in plan.loads), default=0)
    return settings.model_copy(
        update={"draft": draft, "max_running_requests": max(settings.max_running_requests, most)}
    )


def recorded(settings: Settings) -> dict[str, Any]:
    """Those that a mode's engine goes by, as JSON has them; target and draft stand in the plan itself."""
    return settings.model_dump(mode="json", include=_ENGINE)


def requests_of(plan: MatrixPlan) -> list[Request]:
    """The requests of every pass. UsageError where the workload is not the one that was planned with."""
    if _digest(plan) != plan.workload["sha256"]:
        raise UsageError(
            f"the workload {plan.workload['path']} has changed since the measurement began",
            remedy="measure anew, without --resume",
        )
    return _drawn(plan)


def _drawn(plan: MatrixPlan) -> list[Request]:
    found = read_requests(
        Path(plan.workload["path"]),
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        domains=plan.workload["domains"],
    )
    drawn = draw(found, plan.requests, plan.seed)
    if len(drawn) < 2:
        raise UsageError(f"{plan.workload['path']} holds one request", remedy="a measurement needs more")
    domains = len({one.domain for one in found})
    if len(drawn) < domains:
        raise UsageError(
            f"--requests {plan.requests} leaves out some of {many(domains, 'domain')}",
            remedy="ask for more requests, or name fewer domains with --domains",
        )
    return drawn


def _digest(plan: MatrixPlan) -> str:
    """Of what the workload's files hold, whatever they are called."""
    path = Path(plan.workload["path"])
    digest = hashlib.sha256()
    try:
        for file in domain_files(path) if path.is_dir() else [path]:
            check_regular(file)  # it is read more than once
            digest.update(file.read_bytes())
    except OSError as error:
        remedy = "a workload is a JSONL file with OpenAI `messages`, or a folder of such files"
        raise UsageError(f"cannot read the workload {path}", why=reason(error), remedy=remedy) from None
    return digest.hexdigest()


def _revision(settings: Settings) -> str | None:
    """The target's, as far as it is known before its files are fetched."""
    target = resolve_target(settings.target, settings.paths)
    if target.known and target.known.revision:
        return target.known.revision
    return describe(target.folder, target).revision if target.folder and target.folder.is_dir() else None
