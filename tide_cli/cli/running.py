"""Commands that ask or end a running appliance: down, ps, status, logs, events, train."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from json import dumps
from typing import Annotated, Any

import typer

from tide_cli.cli.app import app, command_group
from tide_cli.cli.output import complain, print_json, print_table
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import TideError
from tide_cli.hints import spelt
from tide_cli.json_files import finite
from tide_cli.paths import Paths
from tide_cli.printable import many, printable_lines
from tide_cli.supervisor.control_client import ask

_FOLLOW_EVERY = 0.3  # seconds between two looks at what is followed


@app.command()
def down(
    state_dir: StateDir = None,
    config: Config = None,
    now: Annotated[bool, typer.Option("--now", help="Kill instead of stopping in order.")] = False,
) -> None:
    """End the appliance and whatever a killed one has left behind."""
    from tide_cli.supervisor.down import bring_down

    ended = bring_down(appliance_paths(state_dir, config), now=now, say=lambda text: complain([text]))
    left = f", {many(ended.leftovers, 'leftover process')} ended" if ended.leftovers else ""
    killed = "the appliance had been killed; what it left is removed"
    complain([("the appliance has ended" if ended.supervisor else killed) + left])


class Part(StrEnum):
    """What can be started anew by itself."""

    engine = "engine"
    trainer = "trainer"


@app.command()
def restart(
    part: Annotated[Part | None, typer.Argument(help="Only this one.", show_default="both")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is ready again.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Start the engine, the trainer or both anew.

    The served draft and the spool stay.
    """
    paths = appliance_paths(state_dir, config)
    before = ask(paths.socket, "GET", "/v1/status")["children"]
    names = [part.value] if part else [name for name in (Part.engine, Part.trainer) if name in before]
    complain([order(paths, "/v1/restart", {"children": names})])
    while wait:
        time.sleep(0.2)
        now = ask(paths.socket, "GET", "/v1/status")["children"]
        if gone := [name for name in names if now[name]["state"] == "FATAL"]:
            raise TideError(f"{gone[0]} did not start: {now[gone[0]]['reason']}", remedy=f"`tide logs {gone[0]}`")
        wait = any(now[name]["state"] != "READY" or now[name]["starts"] == before[name]["starts"] for name in names)


@app.command()
def ps(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """The processes of the running appliance and their states."""
    status = ask(appliance_paths(state_dir, config).socket, "GET", "/v1/status")
    rows = [{"name": "supervisor", "pid": status["pid"], "state": status["state"], "phase": None, "starts": 1}]
    rows[0] |= {"seconds": round(time.time() - status["started"], 3), "reason": None}
    for name, child in status["children"].items():
        shown = ("pid", "state", "phase", "starts", "seconds", "reason")
        rows.append({"name": name, **{key: child.get(key) for key in shown}})
    if json:
        print_json(rows)
    else:
        names = ("name", "pid", "state", "phase", "seconds", "starts", "reason")
        print_table(names, [[_cell(row[name]) for name in names] for row in rows])


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return f"{value['words']} {value['seconds']:.0f} s"
    return round(value) if isinstance(value, float) else value


@app.command()
def status(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Load, acceptance, capture, training, drafts, events.

    For programs --json has every field; docs/telemetry.md explains them.
    """
    socket = appliance_paths(state_dir, config).socket
    answer = ask(socket, "GET", "/v1/status")
    if json:
        print_json(answer)
        return
    from rich.console import Console

    from tide_cli.dashboard.status import render_status

    try:
        history = ask(socket, "GET", "/v1/history?since=900&step=1")
    except TideError:  # of an appliance that was started by an earlier version
        history = None
    Console().print(render_status(answer, time.time(), history))


class LogName(StrEnum):
    """The logs worth reading; each is a file in the state folder's logs/."""

    engine = "engine"
    trainer = "trainer"
    supervisor = "supervisor"
    target = "target"
    draft = "draft"
    on_event = "on_event"


@app.command()
def logs(
    name: Annotated[LogName, typer.Argument(help="Whose log.")] = LogName.engine,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; Ctrl-C ends it.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines from the end.")] = 50,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Print the end of a log.

    On a terminal whatever it would obey is spelt out; elsewhere the bytes of the log come as they are. With --follow it
    waits for an appliance, too, and says so.
    """
    from tide_cli.supervisor.logs import read_log

    paths = appliance_paths(state_dir, config)
    path = paths.logs / f"{name}.log"
    if not path.exists():
        remedy = "the command of the setting on_event writes it" if name is LogName.on_event else "`tide up` writes it"
        raise TideError(f"there is no {name} log", why=f"{path} does not exist", remedy=remedy)
    sys.stdout.reconfigure(errors="replace")
    show = printable_lines if sys.stdout.isatty() else str
    if follow:
        _say_if_none_runs(paths)
    for text in read_log(path, lines, follow):
        print(show(text), end="", flush=follow)


def _say_if_none_runs(paths: Paths) -> None:
    """A follower waits for an appliance that is yet to come: that is said, once."""
    from tide_cli.file_locks import is_locked

    if not is_locked(paths.lock):
        complain([f"no appliance runs on {paths.state}: waiting for one", "`tide up` starts one, Ctrl-C ends this"])


@app.command()
def events(
    state_dir: StateDir = None,
    config: Config = None,
    newest: Annotated[int, typer.Option("--newest", "-n", min=1, max=10**6, help="At most so many, the newest.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; Ctrl-C ends it.")] = False,
    json: Json = False,
) -> None:
    """Every decision with its reasons, also after the end.

    With --follow it waits for an appliance, too, and says so; JSON is then one object a line.
    """
    from tide_cli.supervisor.journal import event_line, read_events

    paths = appliance_paths(state_dir, config)
    database = paths.database
    rows = read_events(database, newest=newest)

    def show(row: dict[str, Any]) -> str:
        return dumps(finite(row)) if json else event_line(row)

    if json and not follow:
        print_json(rows)
    elif not rows and not follow:
        print("no events")
    else:
        for row in rows:
            print(show(row), flush=follow)
    if follow:
        _say_if_none_runs(paths)
    while follow:
        time.sleep(_FOLLOW_EVERY)
        for row in read_events(database, after=rows[-1]["id"] if rows else 0):
            print(show(row), flush=True)
            rows = [row]


train_app = command_group("Training of the draft.")
app.add_typer(train_app, name="train")


@train_app.command("now")
def train_now(state_dir: StateDir = None, config: Config = None) -> None:
    """Begin a training cycle without waiting for more traffic."""
    print(order(appliance_paths(state_dir, config), "/v1/train"))


@train_app.command("pause")
def train_pause(state_dir: StateDir = None, config: Config = None) -> None:
    """Let no cycle begin until `resume`, over restarts too.

    A running one stops; `resume` goes on with it.
    """
    print(order(appliance_paths(state_dir, config), "/v1/train/pause", {"pause": True}))


@train_app.command("resume")
def train_resume(state_dir: StateDir = None, config: Config = None) -> None:
    """Let cycles begin again, first the one that `pause` has cut short."""
    print(order(appliance_paths(state_dir, config), "/v1/train/pause", {"pause": False}))


@train_app.command("status")
def train_status(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """What the trainer does, and what the last gate said."""
    answer = ask(appliance_paths(state_dir, config).socket, "GET", "/v1/status")
    if json:
        print_json({**answer["training"], "trainer": answer["children"].get("trainer"), "gate": answer["gate"]})
        return
    from rich.console import Console

    from tide_cli.dashboard.status import render_training

    console = Console()
    console.print(render_training(answer, time.time(), console.width))


def order(paths: Paths, resource: str, body: dict[str, Any] | None = None) -> str:
    """An order to the running supervisor; returns its answer in words, and says where that takes long."""
    waiting = ["the supervisor has the order, and is still at it"]
    return spelt(str(ask(paths.socket, "POST", resource, body, waits=lambda: complain(waiting))["done"]))
