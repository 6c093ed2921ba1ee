"""Child process `python -m tide_cli.targets NAME CACHE`: converts or downloads one checkpoint.

Prints `say …` lines while it works and `folder PATH` at the end; errors go to stderr as `tide: …` lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tide_cli.errors import TideError, reason
from tide_cli.paths import Paths
from tide_cli.targets.locate import resolve_target


def main() -> int:
    name, cache = sys.argv[1:3]
    try:
        target = resolve_target(name, Paths.under(Path(cache), Path(cache)))
        if target.embedded:
            from tide_cli.targets.embedded import convert

            folder = convert(target.known, target.folder, say=lambda line: print(f"say {line}", flush=True))
        elif target.folder is None:
            from tide_cli.targets.hub import download

            print(f"say fetching {target.hub_id} from the hub", flush=True)
            folder = download(target.hub_id, target.known.revision if target.known else None)
        else:
            folder = target.folder
    except OSError as error:
        print(f"tide: cannot use the cache folder {cache}: {reason(error)}", file=sys.stderr)
        print("tide: free some space there, or pass --cache-dir with a folder you can write to", file=sys.stderr)
        return 1
    except TideError as error:
        print("\n".join(f"tide: {line}" for line in error.lines()), file=sys.stderr)
        return int(error.exit_code)
    print(f"folder {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
