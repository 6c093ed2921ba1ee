"""`python -m tide_cli` is `tide`."""

from __future__ import annotations

from tide_cli.cli import main

if __name__ == "__main__":
    main()
