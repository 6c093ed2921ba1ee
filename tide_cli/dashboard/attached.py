"""The process behind foreground.py: `python -m tide_cli.dashboard.attached PIPE SUPERVISOR_PID STATE CACHE`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tide_cli.dashboard.app import TopApp
from tide_cli.dashboard.feed import Feed
from tide_cli.dashboard.run import run_app, wants_ascii
from tide_cli.paths import Paths


def main(arguments: list[str]) -> int:
    pipe, supervisor = int(arguments[0]), int(arguments[1])
    paths = Paths.under(Path(arguments[2]), Path(arguments[3]))

    def interrupt() -> None:
        if os.getppid() == supervisor:
            os.kill(supervisor, signal.SIGINT)

    try:
        run_app(TopApp(paths, Feed(paths.socket), ascii=wants_ascii(), interrupt=interrupt, ends=pipe))
    except Exception as error:  # a fault of the dashboard's own: the process behind it goes on and says so
        print(f"tide: unexpected {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
