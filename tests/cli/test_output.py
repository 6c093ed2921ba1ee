"""Where output goes that nobody can take: a full disk, a pipe without a reader, a closed stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

from tide_cli.cli.output import complain, print_json, table_lines, words_of
from tide_cli.printable import size_words


def run(*arguments: object, unbuffered: bool = False, **streams: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDE_", "PYTHONUN"))}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "tide_cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True, timeout=60, **streams)


COMMANDS = (
    ["--help"],
    ["version"],
    ["config"],
    ["paths", "--json"],
    ["gpus", "--json"],
    ["plan"],
    ["events"],
    ["drafts", "ls"],
    ["systemd"],
)


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_a_full_disk_is_said_in_one_line(tmp_path: Path, arguments: list[str], unbuffered: bool) -> None:
    given = [] if arguments[0] in ("--help", "version", "gpus") else ["--state-dir", tmp_path]
    with Path("/dev/full").open("w") as full:
        done = run(*arguments, *given, stdout=full, stderr=subprocess.PIPE, unbuffered=unbuffered)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "systemctl" not in line]  # `tide systemd` says what to do
    assert said == ["tide: the output cannot be written: No space left on device"]


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("arguments", [["version"], ["config"], ["--help"]], ids=lambda words: words[0])
def test_a_pipe_without_a_reader_is_the_end_and_no_error(arguments: list[str], unbuffered: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run(*arguments, stdout=writer, stderr=subprocess.PIPE, unbuffered=unbuffered)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")  # what a shell reports of SIGPIPE


def test_a_table_holds_nothing_that_a_terminal_would_obey() -> None:
    lines = table_lines(("a\x1bb", "n"), [("\x1b]0;title\x07", 1), ("a\nb", None), ("größer", 2.5)])
    assert [line.split("  ")[0] for line in lines] == [r"a\x1bb", r"\x1b]0;title\x07", "a; b", "größer"]
    assert [line.split()[-1] for line in lines] == ["n", "1", "-", "2.5"]


def test_a_failure_is_not_covered_by_lost_output(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        assert run("ps", "--state-dir", tmp_path, stdout=full, stderr=full).returncode == 3
        assert run("bogus", stdout=full, stderr=full).returncode == 2


def test_closed_streams_lose_what_is_written_and_nothing_else() -> None:
    for streams, code in ((">&-", 0), ("2>&-", 0), (">&- 2>&-", 0)):
        done = subprocess.run(
            f"{sys.executable} -m tide_cli version {streams}", shell=True, cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == code
        assert done.stderr == ""
    done = subprocess.run(f"{sys.executable} -m tide_cli bogus 2>&-", shell=True, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")  # no complaint in the place of an answer


def test_json_is_json_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), float("-inf"), 1.5], "b": "\ud800é"})
    said = capsys.readouterr().out
    assert json.loads(said, parse_constant=pytest.fail) == {"a": [None, None, 1.5], "b": "\ud800é"}
    assert "é" in said


def test_a_message_is_as_many_lines_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    complain(["a\nb\x1b[2J", "c\rd"])
    assert capsys.readouterr().err == "tide: a; b\\x1b[2J\n      c\\rd\n"


def test_names_of_figures_are_spelt_out() -> None:
    names = ("candidate_al", "ttft_p50_ms", "output_tok_s", "requests_s", "prefix_missing", "seconds")
    assert [words_of(name) for name in names] == [
        *("candidate acceptance length", "time to first token p50 ms", "output tok/s", "requests/s"),
        *("prefix missing", "seconds"),
    ]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (5 * 2**19, "2.5 MiB"),
        (2**36, "64.0 GiB"),
        (2**52, "4096.0 TiB"),
    ],
)
def test_a_size_has_the_unit_that_fits(size: int, words: str) -> None:
    assert size_words(size) == words
