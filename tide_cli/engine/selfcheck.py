"""`python -m tide_cli.engine.selfcheck`: does the installed SGLang have every name TIDE hooks? For `tide doctor`.

Prints one line for each problem and exits with 1; prints the version and exits with 0 when all is as expected.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys


def main() -> int:
    on_cpu = os.environ.get("SGLANG_USE_CPU_ENGINE") == "1"
    from tide_cli.engine import hook_points

    version = importlib.metadata.version("sglang")
    points = hook_points.REQUESTS + hook_points.SPECULATION + (hook_points.CPU if on_cpu else ())
    found = hook_points.problems(points)
    if version != hook_points.SGLANG_VERSION:
        found.insert(0, f"sglang is {version}, TIDE is written for {hook_points.SGLANG_VERSION}")
    print("\n".join(found) or f"sglang {version}: {len(points)} hook points as expected")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
