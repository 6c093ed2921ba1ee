"""`python -m tide_cli.training`: `worker …`, `day-zero --config FILE`, `replay …`, `helper …`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tide_cli.child_words import complain
from tide_cli.errors import TideError
from tide_cli.training.config import TrainingConfig


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tide_cli.training", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    worker = verbs.add_parser("worker", help="train on command until told to stop")
    worker.add_argument("--config", type=Path, required=True)
    worker.add_argument("--events-fd", type=int, required=True)
    day_zero = verbs.add_parser("day-zero", help="publish the first draft where there is none")
    day_zero.add_argument("--config", type=Path, required=True)
    helper = verbs.add_parser("helper", help="train with a worker, as its child")
    helper.add_argument("--rank", type=int, required=True)
    helper.add_argument("--pipe", type=int, required=True)
    again = verbs.add_parser("replay", help="run a recorded cycle again")
    again.add_argument("--cycle", type=int, required=True)
    again.add_argument("--seed", type=int)
    again.add_argument("--events-fd", type=int, required=True)
    for folder in ("state", "spool", "drafts"):
        again.add_argument(f"--{folder}", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.verb == "helper":
        from tide_cli.training.helper import run as run_helper

        return run_helper(options.rank, options.pipe)
    if options.verb == "replay":
        from tide_cli.training.replay import run as run_again

        folders = {name: getattr(options, name) for name in ("state", "spool", "drafts")}
        return run_again(folders, options.cycle, options.seed, options.events_fd)
    try:
        config = TrainingConfig.from_json(options.config.read_text())
        if options.verb == "worker":
            from tide_cli.training.worker import run

            return run(config, options.events_fd)
        from tide_cli.drafts.manifest import version_name
        from tide_cli.training.day_zero import publish_day_zero

        print(version_name(publish_day_zero(config)))
        return 0
    except TideError as error:
        complain(error)
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
