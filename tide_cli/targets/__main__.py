"""Child process `python -m tide_cli.targets NAME CACHE [DRAFT]`: converts or downloads one checkpoint.

DRAFT is a hub id that will be fetched next: whether it fits the target is looked at before anything large is fetched.
Prints `say …` lines while it works and `folder PATH` at the end; errors go to stderr as `tide: …` lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tide_cli.child_words import complain, say
from tide_cli.drafts.fit import TargetFacts, misfit
from tide_cli.errors import TideError, reason
from tide_cli.paths import Paths
from tide_cli.targets.known import pinned_revision
from tide_cli.targets.locate import resolve_target


def main() -> int:
    name, cache, *draft = sys.argv[1:]
    try:
        target = resolve_target(name, Paths.under(Path(cache), Path(cache)))
        if target.embedded:
            from tide_cli.targets.embedded import convert

            folder = convert(target.known, target.folder, say=say)
        elif target.folder is None:
            from tide_cli.targets.hub import download

            revision = pinned_revision(target.hub_id)
            if draft:
                _check_draft(draft[0], target.hub_id, revision)
            folder = download(target.hub_id, revision, say)
        else:
            folder = target.folder
    except OSError as error:
        print(f"tide: cannot use the cache folder {cache}: {reason(error)}", file=sys.stderr)
        print("tide: free some space there, or pass --cache-dir with a folder you can write to", file=sys.stderr)
        return 1
    except TideError as error:
        complain(error)
        return int(error.exit_code)
    print(f"folder {folder}")
    return 0


def _check_draft(draft: str, hub_id: str, revision: str | None) -> None:
    """Raises TideError where the draft's config.json does not fit the target's."""
    from tide_cli.targets.hub import read_config

    target = TargetFacts.of(read_config(hub_id, revision))
    if why := misfit(read_config(draft, pinned_revision(draft)), target):
        what = f"the draft {draft} does not belong to {hub_id}"
        raise TideError(what, why=why, remedy="pass another one with --draft")


if __name__ == "__main__":
    sys.exit(main())
