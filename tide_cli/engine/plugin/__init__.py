"""What runs inside SGLang: the entry point of group `sglang.srt.plugins`, loaded by SGLang in each of its processes."""

from __future__ import annotations

import gc
import multiprocessing

from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.hardware.affinity import keep_to


def load() -> None:
    """Install TIDE's hooks where this SGLang was started by TIDE; do nothing in any other.

    Ends the process with the list of moved names where this SGLang is not the one TIDE knows: SGLang swallows
    ordinary exceptions here and would go on without the hooks.
    """
    config = EngineConfig.from_environment()
    if config is None:
        return
    try:
        _load(config)
    finally:  # see tide_cli.engine.serve
        gc.freeze()  # no collection looks at the imported modules again
        gc.enable()


def _load(config: EngineConfig) -> None:
    from sglang.srt.utils import is_cpu

    from tide_cli.engine import hook_points

    on_cpu = is_cpu()
    points = hook_points.REQUESTS
    points += (hook_points.SPECULATION if config.speculation else ()) + (hook_points.CPU if on_cpu else ())
    if moved := hook_points.problems(points):
        lines = "\n  ".join(moved)
        raise SystemExit(
            f"tide: this SGLang is not {hook_points.SGLANG_VERSION} as TIDE knows it:\n  {lines}\n"
            f"tide: run ./install.sh, which installs sglang=={hook_points.SGLANG_VERSION}"
        )
    if on_cpu:
        from tide_cli.engine.cpu import install as install_cpu

        install_cpu(speculation=config.speculation)
    from tide_cli.engine.plugin import request_check

    request_check.install()
    if config.speculation:
        from tide_cli.engine.plugin import install

        install.install(config)
    if on_cpu and multiprocessing.parent_process() is not None:
        # scheduler and detokenizer, with their imports behind them; the launcher has not begun those two yet
        keep_to(config.cores)
