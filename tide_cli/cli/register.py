"""Importing this attaches every command to the application."""

from __future__ import annotations

from tide_cli.cli import about, demo, doctor, draft_store, drafts, plan, profile, running, systemd, up  # noqa: F401
