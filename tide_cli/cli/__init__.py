"""The command line: thin commands, one file for each family of verbs."""

from tide_cli.cli.app import main

__all__ = ["main"]
