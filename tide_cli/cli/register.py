"""Importing this attaches every command to the application."""

from __future__ import annotations

from tide_cli.cli import about, bench, demo, doctor, drafts, running, spool, spool_change, up  # noqa: F401
