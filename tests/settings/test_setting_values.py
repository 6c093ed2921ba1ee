"""A setting is read and refused the same wherever it comes from."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.cli import main
from tide_cli.errors import UsageError
from tide_cli.setting_values import parse_size, shown, takes
from tide_cli.settings import Settings, load_settings, load_with_origins

REFUSED = [
    ("port", "0", "a whole number from 1 to 65535"),
    ("port", "65536", "a whole number from 1 to 65535"),
    ("port", "true", "a whole number from 1 to 65535"),
    ("port", "1.0", "a whole number from 1 to 65535"),
    ("port", "1_000", "a whole number from 1 to 65535"),
    ("port", "9" * 5000, "a whole number from 1 to 65535"),
    ("tp", "x", "a whole number from 1 to 1024"),
    ("context_length", "63", "a whole number from 64 to 2147483647"),
    ("cycle_seconds", "inf", "a number above 0, at most 100000000"),
    ("cycle_seconds", "nan", "a number above 0, at most 100000000"),
    ("cycle_seconds", "1e999", "a number above 0, at most 100000000"),
    ("cycle_seconds", "0", "a number above 0, at most 100000000"),
    ("gate_samples", "3", "a whole number from 4 to 2147483647"),
    ("gate_confidence", "0.5", "a number above 0.5, below 1"),
    ("replay_share", "-0.1", "a number from 0 on, below 1"),
    ("dtype", "float16", "one of auto, float32, bfloat16"),
    ("speculation", "sometimes", "one of auto, on, off, a number from 1 to 8"),
    ("speculation", "9", "one of auto, on, off, a number from 1 to 8"),
    ("speculation", "9" * 5000, "one of auto, on, off, a number from 1 to 8"),
    ("speculation_margin", "9" * 5000, "a number from 0 on, below 1"),
    ("capture", "perhaps", "true or false"),
    ("spool_size", "much", "is not a size"),
    ("spool_size", "-1", "is not a size"),
    ("spool_size", "9999TiB", "more than any machine has"),
    ("spool_size", "9" * 400, "is not a size"),
    ("host", "a b", "neither an address nor the name of a host"),
    ("host", "999.1.1.1", "neither an address nor the name of a host"),
    ("host", "1.2.3", "neither an address nor the name of a host"),
    ("target", " ", "it is empty"),
    ("target", "a\nb", "cannot be printed"),
    ("target", "\udcff", "cannot be printed"),
    ("target", "a" * 256, "too long"),
    ("draft", "a/" * 3000, "too long"),
    ("state_dir", "a\nb", "cannot be printed"),
    ("state_dir", "~nobody-of-this-name/x", "no home folder"),
    ("cache_dir", "/" + "a" * 256, "too long"),
    ("sglang_arguments", "'unclosed", "quotation"),
    ("sglang_arguments", "'a\nb'", "cannot be printed"),
]


def refused(**arguments: Any) -> UsageError:
    with pytest.raises(UsageError) as raised:
        load_settings(**arguments)
    assert len(raised.value.lines()) <= 2
    assert not any("\n" in line or len(line) > 400 for line in raised.value.lines())
    return raised.value


@pytest.mark.parametrize(("name", "text", "words"), REFUSED, ids=lambda value: repr(value)[:20])
def test_refused_in_the_same_words_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, words: str
) -> None:
    by_flag = refused(flags={name: text})
    file = tmp_path / "tide.toml"
    file.write_text(f"{name} = {json.dumps(text)}\n", errors="surrogatepass")
    by_file = refused(config=file) if "udcff" not in ascii(text) else by_flag  # no TOML
    monkeypatch.setenv(f"TIDE_{name.upper()}", text)
    by_variable = refused()
    assert words in str(by_flag.why)
    assert by_flag.why == by_variable.why == by_file.why
    assert by_flag.what.startswith("--" + name.replace("_", "-") + ": ")
    assert by_variable.what.startswith(f"TIDE_{name.upper()}: ")
    assert name in by_file.lines()[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", True),
        ("port", 1.0),
        ("port", []),
        ("tp", date(2026, 1, 1)),
        ("cycle_seconds", False),
        ("cycle_seconds", float("inf")),
        ("cycle_seconds", float("nan")),
        ("capture", 2),
        ("capture", 0.5),
        ("target", ""),
        ("target", 7),
        ("target", "a\0b"),
        ("state_dir", ""),
        ("state_dir", 7),
        ("spool_size", True),
        ("spool_size", 1.5),
        ("dtype", 7),
        ("speculation", 0),
        ("speculation", 2.5),
        ("sglang_arguments", [1]),
        ("sglang_arguments", 7),
        ("sglang_arguments", ["a\0b"]),
    ],
)
def test_what_only_a_file_can_say_is_held_to_the_same(name: str, value: object) -> None:
    said = "\n".join(refused(flags={name: value}).lines())
    assert "--" + name.replace("_", "-") in said
    for foreign in ("Input should", "datetime", "NoneType", "<class", "Path(", "valid "):
        assert foreign not in said


def test_every_setting_says_what_it_takes() -> None:
    for name, field in Settings.model_fields.items():
        if name not in ("spool_size", "reservoir_size", "sglang_arguments"):
            assert takes(field)
            assert "None" not in takes(field)


@given(st.sampled_from(["port", "cycle_seconds", "tp", "seed", "gate_margin", "host", "target", "dtype"]), st.data())
def test_no_text_gets_past_as_an_accident(name: str, data: st.DataObject) -> None:
    """A value or a refusal, no other error; what is taken is taken again when it is written out and read back."""
    text = data.draw(st.one_of(st.text(max_size=20), st.floats().map(str), st.integers().map(str)))
    try:
        settings = load_settings({name: text})
    except UsageError:
        return
    assert Settings(**json.loads(settings.model_dump_json())) == settings


def test_an_empty_variable_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tide.toml").write_text("port = 1234\n")
    monkeypatch.setenv("TIDE_PORT", "")
    settings, origins = load_with_origins({"cycle_tokens": "7"}, tmp_path / "tide.toml")
    assert (settings.port, settings.cycle_tokens) == (1234, 7)
    assert (origins["port"], origins["cycle_tokens"], origins["host"]) == ("file", "flag", "default")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"prot = 1", "did you mean port?"),
        (b"zzz = 1", "`tide config --config /dev/null`"),
        (b"[port]", "port in"),
        (b"port = ", "cannot read"),
        (b"\xff", "not a text"),
        (b"a = " + b"[" * 9000, "cannot read"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "tide.toml").write_bytes(content)
    assert words in "\n".join(refused(config=tmp_path / "tide.toml").lines())
    assert load_settings(config=Path("/dev/null")) == load_settings()  # what the remedy names works


COMMANDS = (["config"], ["plan"], ["systemd"], ["up"])


@pytest.mark.parametrize(
    "variables",
    [
        {"PORT": "x"},
        {"CYCLE_SECONDS": "inf"},
        {"TARGET": "smollm"},
        {"TARGET": "/no/such/folder"},
        {"DRAFT": "/no/such/draft"},
        {"GPUS": "0-x"},
        {"SERVE_GPUS": "3-1"},
        {"TRAIN_GPUS": "GPU"},
        {"SERVE_CORES": "7-3"},
        {"TRAIN_CORES": "a"},
        {"SGLANG_ARGUMENTS": "--port 1"},
        {"SGLANG_ARGUMENTS": "x"},
        {"STATE_DIR": "/dev/null"},
    ],
    ids=str,
)
def test_every_command_refuses_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
) -> None:
    monkeypatch.setenv("TIDE_STATE_DIR", str(tmp_path / "state"))
    for name, value in variables.items():
        monkeypatch.setenv(f"TIDE_{name}", value)
    said = set()
    for command in COMMANDS:
        with pytest.raises(SystemExit) as end:
            main(command)
        out, err = capsys.readouterr()
        assert (end.value.code, out) == (2, ""), command
        assert 1 <= len(err.splitlines()) <= 2
        said.add(err)
    assert len(said) == 1
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("flag", [["--serve-cores", "4095"], ["--train-cores", "4095"], ["--serve-gpus", "999"]])
def test_what_this_machine_lacks_is_refused_by_all_that_speak_of_it(
    capsys: pytest.CaptureFixture[str], flag: list[str]
) -> None:
    said = set()
    for command in ("plan", "systemd", "up"):
        with pytest.raises(SystemExit):
            main([command, *flag])
        said.add(capsys.readouterr().err)
    assert len(said) == 1
    assert flag[0] in said.pop()


def test_a_foreign_host_is_refused_before_a_unit_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    said = set()
    for command in ("systemd", "up"):
        with pytest.raises(SystemExit):
            main([command, "--host", "203.0.113.7"])
        said.add(capsys.readouterr())
    assert len(said) == 1
    assert "cannot listen on 203.0.113.7" in said.pop().err


def test_sizes() -> None:
    assert [parse_size(text) for text in ("512MiB", "2G", "1.5k", 7)] == [2**29, 2 * 10**9, 1500, 7]


def test_a_refused_value_is_shown_short() -> None:
    assert (shown(True), shown("x"), shown(7), shown([1]), shown({})) == ("true", "'x'", "7", "a list", "a table")
    assert len(shown("x" * 1000)) < 70
