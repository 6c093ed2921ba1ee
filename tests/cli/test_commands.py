"""Commands without an appliance: answers, refusals, exit codes, and what they import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, tide

from tide_cli import __version__
from tide_cli.paths import Paths
from tide_cli.settings import Settings

HEAVY = (
    "torch",
    "sglang",
    "transformers",
    "numpy",
    "fastapi",
    "uvicorn",
    "pydantic_settings",
    "sqlite_utils",
    "httpx",
    "textual",
)


def test_version_and_help() -> None:
    assert tide("version").stdout == tide("--version").stdout == f"tide {__version__}\n"
    answer = tide("--help")
    assert answer.returncode == 0
    for command in ("up", "down", "ps", "status", "logs", "events", "train", "drafts", "config", "paths", "doctor"):
        assert f"\n  {command} " in answer.stdout


@pytest.mark.parametrize("group", [[], ["drafts"], ["spool"], ["--debug"]])
def test_a_group_alone_shows_its_help_as_it_is(group: list[str]) -> None:
    answer = tide(*group)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == tide(*group, "--help").stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ps"], ["status"], ["top"], ["up", "--help"], ["train", "now"], ["logs"]]
)
def test_light_commands_import_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    code = f"""
import sys
from tide_cli.cli import main
try:
    main({arguments!r})
except SystemExit:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    environment = {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path), "TIDE_STATE_DIR": str(tmp_path / "state")}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert answer.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bogus"], 2, "bogus"),
        (["up", "--bogus"], 2, "--bogus"),
        (["up", "--port", "x"], 2, "--port"),
        (["up", "--port", "99999"], 2, "--port"),
        (["up", "--target", "smollm"], 2, "smollm2-135m"),
        (["up", "--wait"], 2, "--detach"),
        (["up", "--config", "/no/such/file"], 2, "/no/such/file"),
        (["up", "--serve-cores", "7-3"], 2, "--serve-cores"),
        (["up", "--", "--port", "1"], 2, "use --port before the `--`"),
        (["up", "smollm2-135m"], 2, "unexpected argument"),
        (["up", "--draft", "/no/such/draft"], 2, "/no/such/draft"),
        (["logs", "kitchen"], 2, "kitchen"),
        (["logs", "engine"], 1, "no engine log"),
        (["logs", "on_event"], 1, "the setting on_event"),
        (["drafts", "use", "seven"], 2, "seven"),
        (["drafts", "use", "7"], 1, "v0007"),
        (["spool", "ls", "-n", "x"], 2, "'--newest' / '-n': it takes a whole number"),
        (["spool", "ls", "-n", "0"], 2, "'--newest' / '-n': it takes numbers from 1 on"),
        (["bench", "spool", "--seconds", "1e9"], 2, "'--seconds': it takes numbers up to 86400"),
        (["bench", "spool", "--seconds", "x"], 2, "'--seconds': it takes a number"),
        (["bench", "spool", "--rate", "inf"], 2, "'--rate': inf is not a number that can be used"),
        (["demo", "--minutes", "nan"], 2, "'--minutes': "),
        (["demo", "--workload", "a" * 300], 2, "'--workload': it is too long"),
        (["bench", "spool", "--folder", "~nobody-here/x"], 2, "no home folder of nobody-here"),
        (["bench", "spool", "--folder", ""], 2, "--folder: '' is not accepted: it is empty"),
        (["bench", "adapt", "--workload", "w", "--domains", "a", "--folder", ""], 2, "--folder: ''"),
        (["bench", "adapt", "--workload", "w", "--domains", "a", "--html", ""], 2, "--html: ''"),
        (["bench", "matrix", "--resume", ""], 2, "--resume: ''"),
        (["bench", "matrix", "--workload", "w", "--results", ""], 2, "--results: ''"),
        (["bench", "matrix", "--workload", "w", "--static", ""], 2, "--static '' is not a draft"),
        (["ps"], 3, "tide up"),
        (["status", "--json"], 3, "tide up"),
        (["down"], 3, "no appliance"),
        (["top"], 3, "tide up"),
        (["train", "now"], 3, "tide up"),
    ],
)
def test_refusals_are_short_and_on_stderr(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    answer = tide(*arguments, TIDE_STATE_DIR=str(tmp_path / "state"))
    assert answer.returncode == code
    assert words in answer.stderr
    assert len(answer.stderr.splitlines()) <= 2
    assert answer.stdout == ""
    assert not (tmp_path / "state").exists()


def test_debug_shows_where(tmp_path: Path) -> None:
    for arguments in (["--debug", "ps"], ["ps", "--debug"]):
        answer = tide(*arguments, "--state-dir", tmp_path)
        assert answer.returncode != 0
        assert "Traceback" in answer.stderr


def test_an_unwritable_state_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = tide("up", "--state-dir", tmp_path / "file" / "state", "--port", "0")
    assert answer.returncode == 2  # the port is looked at first
    answer = tide("up", "--state-dir", tmp_path / "file" / "state", "--port", "39871", "-d")
    assert answer.returncode == 1
    assert "cannot use the folder" in answer.stderr
    assert len(answer.stderr.splitlines()) == 2


def test_paths(tmp_path: Path) -> None:
    answer = tide("paths", "--json", "--state-dir", tmp_path / "s", "--cache-dir", tmp_path / "c")
    expected = Paths.under(tmp_path / "s", tmp_path / "c").as_dict() | {"settings": "/nonexistent/tide/tide.toml"}
    assert json.loads(answer.stdout) == expected


def test_config_says_where_each_value_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "tide.toml"
    file.write_text("port = 1234\ncycle_tokens = 7\n")
    answer = tide("config", "--json", "--config", file, "--state-dir", tmp_path, TIDE_CYCLE_TOKENS="9")
    rows = {row["name"]: row for row in json.loads(answer.stdout)}
    assert set(rows) == set(Settings.model_fields)
    assert (rows["state_dir"]["value"], rows["state_dir"]["origin"]) == (str(tmp_path), "flag")
    assert (rows["port"]["value"], rows["port"]["origin"]) == (1234, "file")
    assert (rows["cycle_tokens"]["value"], rows["cycle_tokens"]["origin"]) == (9, "environment")
    assert rows["host"]["origin"] == "default"
    assert all(row["description"] for row in rows.values())


def test_the_options_of_up_are_settings() -> None:
    """A new option is a decision; and each of them but a few is a setting of the same name."""
    from tide_cli.cli.up import up

    extra = {"config", "detach", "wait", "no_speculation"}
    options = set(up.__annotations__) - {"return"}
    assert options - extra <= set(Settings.model_fields)
    assert options == extra | {
        "target", "draft", "state_dir", "cache_dir", "host", "port", "dtype", "context_length", "max_running_requests",
        "gpus", "serve_gpus", "train_gpus", "tp", "serve_cores", "train_cores", "spool_size", "cycle_tokens",
        "cycle_seconds", "seed", "capture", "training", "speculation", "sglang_arguments", "capture_sample_rate",
        "retention_hours",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"), [("auto", "auto"), ("on", "on"), ("off", "off"), ("4", 4), ("false", "off"), ("true", "auto")]
)
def test_speculation_is_a_word_or_a_number(text: str, value: str | int) -> None:
    rows = {row["name"]: row for row in json.loads(tide("config", "--json", TIDE_SPECULATION=text).stdout)}
    assert rows["speculation"]["value"] == value


@pytest.mark.parametrize("text", ["0", "9", "-1", "sometimes"])
def test_any_other_speculation_is_a_usage_error(text: str) -> None:
    answer = tide("up", "--speculation", text)
    assert answer.returncode == 2
    assert "--speculation" in answer.stderr


def test_speculation_and_its_opposite_contradict_each_other() -> None:
    answer = tide("up", "--speculation", "on", "--no-speculation")
    assert answer.returncode == 2
    assert "contradict" in answer.stderr


def test_every_command_has_a_help_text() -> None:
    for arguments in (["drafts", "--help"], ["train", "--help"], ["--help"]):
        rows = tide(*arguments).stdout.partition("Commands:")[2].strip().splitlines()
        assert rows
        assert all(len(row.split(maxsplit=1)) == 2 for row in rows)


def test_output_into_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "engine.log"
    log.parent.mkdir()
    log.write_text("line\n" * 100_000)
    command = f"{sys.executable} -m tide_cli logs -n 100000 --state-dir {tmp_path} | head -1"
    answer = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert answer.stdout == "line\n"
    assert answer.stderr == ""


def test_what_the_command_for_events_has_said_is_a_log_like_the_others(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "on_event.log"
    log.parent.mkdir()
    log.write_text("mail: no such person\n")
    assert tide("logs", "on_event", "--state-dir", tmp_path).stdout == "mail: no such person\n"


def test_ctrl_c_before_a_command_has_begun_is_no_traceback() -> None:
    """While Python still reads the program, which takes the larger part of a short command's time."""
    code = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "tide_cli.cli.register":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from tide_cli.cli import main
main(["ps"])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "tide: interrupted\n")
