"""The live status of `tide up` and `tide status`: one panel from the status that the supervisor publishes."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tide_cli.dashboard.words import clock, count, duration, version

STATE_STYLES = {
    "READY": "bold green",
    "DEGRADED": "bold yellow",
    "FATAL": "bold red",
    "BACKOFF": "bold yellow",
    "STOPPING": "yellow",
    "STOPPED": "dim",
    "WAITING": "dim",
}
_DOMAINS_SHOWN = 6
_QUIET = {"started", "exited"}  # events whose news the states show too


def render_status(status: dict[str, Any], now: float, hint: str | None = None) -> RenderableType:
    """status: as `GET /v1/status` answers; now: unix seconds; hint: what a key does, for the lower border."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1)
    for label, value in _rows(status, now):
        table.add_row(label, value)
    parts: list[RenderableType] = [table]
    news = [event for event in status["events"] if event["time"] >= status["started"]]
    if events := [event for event in news if event["kind"] not in _QUIET]:
        parts += [Text(), _events(events)]
    title = Text.assemble("TIDE  ", (status["state"], STATE_STYLES.get(status["state"], "bold cyan")))
    return Panel(Group(*parts), title=title, title_align="left", subtitle=hint, subtitle_align="right")


def _rows(status: dict[str, Any], now: float) -> list[tuple[str, RenderableType]]:
    ready = status["state"] == "READY"
    address = Text(status["address"], style="bold") if ready else Text(f"{status['address']}  not answering", "dim")
    rows: list[tuple[str, RenderableType]] = [
        ("target", Text(status["target"])),
        ("address", address),
        ("up for", Text(duration(now - status["started"]))),
        ("processes", _children(status["children"])),
        ("engine", Text(_engine(status["engine"]))),
        *_speculation(status["speculation"]),
        *_domains(status.get("live", {}).get("domains", {})),  # an appliance of an earlier version has none
        ("captured", Text(_spool(status["spool"]))),
        ("draft", Text(_drafts(status["drafts"], ready))),
        ("training", _training(status["training"])),
    ]
    rows += _coverage(status["training"])
    if status["gate"]:
        rows.append(("last gate", _gate(status["gate"])))
    if status["reason"]:
        rows.append(("reason", Text(status["reason"], style="red")))
    rows += [("note", Text(note, style="yellow")) for note in status["notes"]]
    return rows


def render_training(training: dict[str, Any]) -> RenderableType:
    """training: the status' own, with the states of the trainer and of the last gate."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1)
    if training["trainer"]:
        table.add_row("trainer", _children({"trainer": training["trainer"]}))
    table.add_row("training", _training(training))
    for label, value in _coverage(training):
        table.add_row(label, value)
    if training["gate"]:
        table.add_row("last gate", _gate(training["gate"]))
    return table


def _children(children: dict[str, dict[str, Any]]) -> Text:
    text = Text()
    for name, child in children.items():
        if child["state"] == "DONE" and children["engine"]["state"] in ("READY", "DEGRADED"):
            continue  # the steps before the engine are history now
        style = STATE_STYLES.get(child["state"], "cyan")
        phase = child.get("phase")
        present = f", {phase['words']} {duration(phase['seconds'])}" if phase else ""
        text.append(f"{name} ").append(child["state"], style).append(
            f" {duration(child['seconds'])}{present}   ", "dim"
        )
    return text


def _engine(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "-"
    length = figures["accept_length"]
    accepted = "acceptance length -" if length is None else f"acceptance length {length:.2f}"
    load = f"{figures['running']} running, {figures['queued']} queued"
    # the engine's own figure is some steps old, and 0 until the first of them
    speed = "- tok/s" if figures["running"] and not figures["tok_s"] else f"{figures['tok_s']:.1f} tok/s"
    return f"{speed}   {accepted}   {load}"


def _speculation(state: dict[str, Any] | None) -> list[tuple[str, RenderableType]]:
    """No row without a draft; where the number of steps is fixed there is nothing to explain."""
    if state is None:
        return []
    if not state["adaptive"]:
        return [("speculation", Text(f"{state['steps']} draft steps, fixed"))]
    if state["measuring"]:
        return [("speculation", Text("measuring round times"))]
    now = f"{state['steps']} draft steps" if state["steps"] else "plain decoding"
    rates = ", ".join(f"{rate:.2f}" for rate in state["acceptance"])
    return [("speculation", Text(f"{now}   acceptance by position {rates}   {state['reason']}"))]


def _domains(domains: dict[str, dict[str, float]]) -> list[tuple[str, RenderableType]]:
    """Those with most requests; no row where clients name none."""
    shown = sorted(domains, key=lambda name: (-domains[name]["requests"], name))[:_DOMAINS_SHOWN]
    words = [f"{name} {domains[name]['acceptance_length']:.2f}" for name in shown]
    more = f" and {len(domains) - len(shown)} more" if len(domains) > len(shown) else ""
    return [("by domain", Text(f"acceptance length {', '.join(words)}{more}"))] if words else []


def _spool(totals: dict[str, int]) -> str:
    if not totals:
        return "nothing yet"
    dropped = sum(value for name, value in totals.items() if name.startswith("dropped"))
    lost = f"   {count(dropped)} requests dropped" if dropped else ""
    return f"{count(totals.get('tokens', 0))} tokens in {count(totals.get('samples', 0))} samples{lost}"


def _drafts(drafts: dict[str, int | None], ready: bool) -> str:
    if drafts["served"] is None:
        return f"none served, newest {version(drafts['latest'])}"
    newer = drafts["latest"] not in (None, drafts["served"])
    role = "served" if ready else "to be served"
    return f"{version(drafts['served'])} {role}" + (f", newest {version(drafts['latest'])}" if newer else "")


def _training(training: dict[str, Any]) -> RenderableType:
    if not training["enabled"]:
        return Text("off")
    if training["paused"] and not training["running"]:
        return Text("paused by the user", style="yellow")
    if not training["running"]:
        return Text(f"waits: {count(training['new_tokens'])} of {count(training['cycle_tokens'])} new tokens")
    progress = training["progress"]
    if not progress:
        return Text("a cycle begins")
    elapsed, budget = progress.get("elapsed_s", 0.0), progress.get("budget_s") or 1.0
    words = (
        f"cycle {progress.get('cycle', '?')}, step {progress.get('step', '?')}, loss {progress.get('loss', 0.0):.3f}, "
        f"{progress.get('tokens_s', 0.0):.0f} tok/s, {duration(elapsed)} of {duration(budget)}"
    )
    return Group(Text(words), ProgressBar(total=budget, completed=min(elapsed, budget), width=40))


def _coverage(training: dict[str, Any]) -> list[tuple[str, RenderableType]]:
    """No row before the first cycle."""
    found = training.get("coverage")
    if found is None:
        return []
    style = "yellow" if found["served"] < found["wanted"] else ""
    return [("vocabulary", Text(f"covers {found['served']:.1%} of {count(found['tokens'])} recent tokens", style))]


def _gate(gate: dict[str, Any]) -> Text:
    passed = bool(gate.get("passed"))
    verdict = ("passed", "green") if passed else ("not passed", "yellow")
    return Text.assemble(verdict, f"  {gate.get('reason', '')}")


def _events(events: list[dict[str, Any]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1)
    for event in events:
        table.add_row(clock(event["time"]), Text(event["text"].replace("\n", "; "), overflow="ellipsis"))
    return table
