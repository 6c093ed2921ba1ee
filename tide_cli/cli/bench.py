"""Measurements on this machine; each prints a table, or with --json the figures and what they were taken under."""

from __future__ import annotations

from tide_cli.cli.app import app, command_group

bench_app = command_group("Measurements on this machine.")
app.add_typer(bench_app, name="bench")
