"""README, docs and pyproject say what the program does, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tide_cli.cli import register  # noqa: F401  attaches the commands
from tide_cli.cli.app import app
from tide_cli.engine.hook_points import SGLANG_VERSION
from tide_cli.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def commands(group: TyperGroup, prefix: str = "tide") -> list[tuple[str, TyperCommand]]:
    found: list[tuple[str, TyperCommand]] = []
    for name, command in sorted(group.commands.items()):
        path = f"{prefix} {name}"
        found += commands(command, path) if isinstance(command, TyperGroup) else [(path, command)]
    return found


COMMANDS = commands(typer.main.get_command(app))
assert {"tide train now", "tide drafts use"} <= {path for path, _ in COMMANDS}  # groups are looked into


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS])
def test_every_command_stands_in_the_table(path: str) -> None:
    assert re.search(rf"^\|.*`{path}\b", README, re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))])
def test_no_page_names_a_command_that_is_gone(page: str) -> None:
    known = {path for path, _ in COMMANDS}
    text = (ROOT / page).read_text()
    named = re.findall(r"(?:`|^)(tide [a-z]+(?: [a-z]+)?)\b", text, re.MULTILINE)
    assert named
    assert [name for name in named if name not in known and name.rsplit(" ", 1)[0] not in known] == []


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_and_option_has_help(path: str, command: TyperCommand) -> None:
    assert command.help
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
    assert options or path == "tide version"
    assert [option.name for option in options if not option.help] == []


def test_every_page_of_the_docs_is_reached_from_the_readme() -> None:
    for page in (ROOT / "docs").iterdir():
        assert f"(docs/{page.name})" in README


def test_the_two_commands_for_a_newcomer_are_there() -> None:
    assert "./install.sh && .venv/bin/tide demo" in README
    assert "./install.sh --dev && .venv/bin/pytest" in README
    assert "./install.sh --dev" in (ROOT / ".ci" / "run").read_text()


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_dependency_is_pinned_and_justified() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    pins = PYPROJECT["project"]["dependencies"] + [
        pin for group in PYPROJECT["dependency-groups"].values() for pin in group
    ]
    for pin in pins:
        assert re.fullmatch(r"[a-z0-9-]+==\S+", pin, re.IGNORECASE), pin
        assert re.search(rf'"{re.escape(pin)}",?\]?\s+#', text), f"{pin} has no reason"


def test_versions_agree() -> None:
    assert PYPROJECT["dependency-groups"]["sglang"] == [f"sglang=={SGLANG_VERSION}"]
    (specforge,) = PYPROJECT["dependency-groups"]["specforge"]
    assert f"sglang {SGLANG_VERSION} and {specforge.replace('==', ' ')}" in README


def test_pins_shared_with_the_cpu_group_agree() -> None:
    """--no-deps and the package's own dependencies must not ask for two versions of one thing."""
    cpu = dict(pin.split("==") for pin in PYPROJECT["dependency-groups"]["cpu"])
    own = dict(pin.split("==") for pin in PYPROJECT["project"]["dependencies"])
    assert {name for name in cpu.keys() & own.keys() if cpu[name] != own[name]} == set()
