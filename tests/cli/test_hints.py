"""Next commands in messages exist, and name the appliance that the message is about."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer
from commands import ROOT, tide
from typer.core import TyperCommand, TyperGroup

from tide_cli.cli import register  # noqa: F401  attaches the commands
from tide_cli.cli.app import app
from tide_cli.cli.output import complain, table_lines
from tide_cli.dashboard.view import cleaned
from tide_cli.hints import remember, spelt
from tide_cli.supervisor.journal import event_line
from tide_cli.supervisor.lock import already_runs


def commands(group: TyperGroup, prefix: str = "") -> dict[str, TyperCommand]:
    found: dict[str, TyperCommand] = {}
    for name, command in group.commands.items():
        path = f"{prefix}{name}"
        found |= commands(command, f"{path} ") if isinstance(command, TyperGroup) else {path: command}
    return found


COMMANDS = commands(typer.main.get_command(app))
ROOMS = [file for file in sorted((ROOT / "tide_cli").rglob("*.py")) if "configs" not in file.parts]


def texts(file: Path) -> list[str]:
    """Every text of a module but docstrings; what is filled in is X."""
    tree = ast.parse(file.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    left_out = {
        node.body[0].value for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node)
    }
    left_out |= {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            found.append(node.value)
    return found


HINTS = sorted({hint for file in ROOMS for text in texts(file) for hint in re.findall(r"`(tide [^`]+)`", text)})
assert {"tide down --now", "tide spool repair", "tide drafts use VERSION"} <= set(HINTS)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    remember({})


def named(hint: str) -> str:
    words = [re.sub("[^a-z].*", "", word) for word in hint.split()[1:3]]
    both = " ".join(words)
    return both if both in COMMANDS else words[0]


@pytest.mark.parametrize(
    "hint", [hint for hint in HINTS if not hint.startswith(("tide X", "tide bench …", "tide bench X"))]
)
def test_a_hint_names_a_command_and_its_appliance(hint: str) -> None:
    command = COMMANDS[named(hint)]
    remember({"state_dir": Path("/some where"), "config": Path("/c.toml")})
    repeats = {option for param in command.params for option in param.opts} >= {"--state-dir", "--config"}
    shown = spelt(f"`{hint}` helps")
    if not repeats or "bench" in hint:
        assert shown == f"`{hint}` helps"
        return
    assert shown.count("--state-dir") == 1
    assert shown.count("--config") == 1
    assert "--state-dir" in hint or "--state-dir '/some where'" in shown


def test_every_hint_stands_in_backquotes() -> None:
    """Else it is not spelt out."""
    words = "|".join(sorted({name.split()[0] for name in COMMANDS}))
    bare = re.compile(rf"(?<!`)(?<!\.\./)\btide (?:{words})\b")
    titles = {"tide top", "tide logs", "tide down"}  # a title, what is looked for in a remedy, who stops it
    hints = re.compile("`[^`]*`")
    rest = [(file.name, text) for file in ROOMS for text in texts(file) if bare.search(hints.sub("", text))]
    assert [(name, text) for name, text in rest if text not in titles] == []


def test_hints_for_the_default_appliance_stay_as_they_are() -> None:
    assert spelt("`tide up` starts one") == "`tide up` starts one"
    remember({"state_dir": Path("s")})
    assert spelt("`tide replay --help`, `tide gpus`, tide up") == "`tide replay --help`, `tide gpus`, tide up"


def test_messages_about_another_folder_name_it(tmp_path: Path) -> None:
    state = tmp_path / "a folder"
    where = f"--state-dir '{state}'"
    for arguments, hint in (
        (["ps"], f"`tide up {where}` starts one"),
        (["down"], f"`tide up {where}` starts one"),
        (["spool", "stat"], f"`tide up {where}` makes one"),
        (["logs"], f"`tide up {where}` writes it"),
        (["drafts", "rollback"], f"`tide drafts ls {where}`"),
    ):
        assert hint in tide(*arguments, "--state-dir", state).stderr
    settings = tmp_path / "tide.toml"
    settings.write_text(f"state_dir = '{state}'\n")
    assert f"`tide up --config {settings}` starts one" in tide("ps", "--config", settings).stderr


def test_a_second_start_is_told_how_to_end_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember({"state_dir": tmp_path})
    complain(already_runs(tmp_path / "lock").lines())
    assert f"`tide down --state-dir {tmp_path}` ends it" in capsys.readouterr().err


def test_hints_in_tables_and_events_are_spelt_out_too(tmp_path: Path) -> None:
    remember({"state_dir": tmp_path})
    event = {"time": 0.0, "text": "`tide logs trainer` says more"}
    for shown in (table_lines(("reason",), [(event["text"],)])[1], event_line(event), cleaned(event["text"])):
        assert f"`tide logs trainer --state-dir {tmp_path}` says more" in shown
