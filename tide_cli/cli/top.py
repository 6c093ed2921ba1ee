"""`tide top`: the running appliance on the whole terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from tide_cli.cli.app import app
from tide_cli.cli.where import Config, StateDir, appliance_paths
from tide_cli.supervisor.control_client import ask

if TYPE_CHECKING:
    from tide_cli.dashboard.feed import Feed, Snapshot


@app.command()
def top(
    state_dir: StateDir = None,
    config: Config = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Give no orders: p, t and r do nothing.")] = False,
    ascii: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=1.0, help="Seconds between two lines, without a terminal.")
    ] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Without drawing: one status a line, as JSON.")] = False,
) -> None:
    """Watch it live; leaving it ends nothing else.

    Load, acceptance length, training, drafts, devices, events. Without a terminal it prints lines.
    """
    from tide_cli.dashboard.feed import Feed
    from tide_cli.dashboard.foreground import can_draw

    paths = appliance_paths(state_dir, config)
    ask(paths.socket, "GET", "/v1/status")  # says at once where there is nothing to watch
    feed = Feed(paths.socket)
    feed.poll()
    if json or not can_draw():
        _print_lines(feed, every, json, ascii)
        return
    from tide_cli.dashboard.app import TopApp
    from tide_cli.dashboard.run import run_app, wants_ascii

    run_app(TopApp(paths, feed, readonly=readonly, ascii=ascii or wants_ascii()))


def _print_lines(feed: Feed, every: float, json: bool, ascii: bool) -> None:
    from tide_cli.dashboard.lines import report

    if json:
        for snapshot in _snapshots(feed, every):
            if not snapshot.gone:
                print(dumps(snapshot.status), flush=True)
        return
    for text in report(_snapshots(feed, every), lambda found: found.view(time.time(), time.monotonic(), ascii)):
        print(text, flush=True)


def _snapshots(feed: Feed, every: float) -> Iterator[Snapshot]:
    while True:
        feed.poll()
        yield feed.latest
        time.sleep(every)
