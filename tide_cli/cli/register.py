"""Importing this attaches every command to the application."""

from __future__ import annotations

from tide_cli.cli import (  # noqa: F401
    about,
    bench,
    bench_adapt,
    bench_capture,
    bench_compare,
    bench_matrix,
    bench_profile,
    bench_spool,
    bench_swap,
    bench_train,
    demo,
    doctor,
    draft_store,
    drafts,
    history,
    plan,
    profile,
    replay,
    running,
    simulate,
    spool,
    spool_change,
    systemd,
    targets,
    top,
    train_replay,
    up,
)
