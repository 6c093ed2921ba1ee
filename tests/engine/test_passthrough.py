"""What may be handed on to SGLang, and what SGLang's own parser makes of it."""

from __future__ import annotations

import argparse

import pytest

from tide_cli.engine.passthrough import _REFUSED, check_sglang_arguments
from tide_cli.errors import UsageError
from tide_cli.settings import load_settings


def check(*arguments: str, speculation: bool = True, capture: bool = True) -> None:
    check_sglang_arguments(arguments, speculation=speculation, capture=capture)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "1"], "use --port before"),
        (["--mem-fraction-static", "0.7", "--port=1"], "--port is not handed on"),
        (["--model", "x"], "use --target"),
        (["--tp", "2"], "to SGLang that is --tp-size"),
        (["--data-parallel-size", "2"], "--no-capture"),
        (["--dp", "2"], "to SGLang that is --dp-size"),
        (["--enable-dp-attention"], "one writer"),
        (["--speculative-num-steps", "9"], "draft_steps"),
        (["--no-speculative-enable-w4a4-mxfp4-megamoe"], "draft"),
        (["--api-key", "secret"], "without a key"),
        (["--ssl-certfile", "x"], "proxy"),
        (["--disaggregation-mode", "prefill"], "prompt and answer"),
        (["--nnodes", "2"], "one machine"),
        (["-h"], "sglang.launch_server --help"),
        (["word", "--page-size", "1"], "unexpected argument 'word'"),
    ],
)
def test_what_contradicts_the_plan_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check(*arguments)
    assert words in " ".join(refusal.value.lines())
    assert len(refusal.value.lines()) == 2


def test_the_rest_is_handed_on() -> None:
    check()
    check("--mem-fraction-static", "0.8", "--log-level=debug", "--enable-dp-lm-head", "--grpc-port", "1", "-1")


def test_several_writers_are_no_trouble_where_nothing_is_captured() -> None:
    check("--dp-size", "2", "--attn-cp-size", "2", capture=False)
    check("--pp-size", "2", capture=False, speculation=False)
    check("--enable-dp-attention", capture=False)
    with pytest.raises(UsageError):
        check("--pp-size", "2", capture=False)


@pytest.mark.parametrize("argument", ["--enable-dp-attention-local-control-broadcast", "--enable-dp-attention-l"])
def test_parts_that_are_told_at_different_times_are_refused_without_capture_too(argument: str) -> None:
    with pytest.raises(UsageError, match=argument) as refusal:
        check("--dp-size", "2", argument, capture=False)
    assert "different rounds" in str(refusal.value.why)


def test_against_every_option_that_sglang_has() -> None:
    """Each refusal names options that exist, and no other option is taken for the beginning of a refused one."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    meant = set()
    for name in (name for refused in _REFUSED for name in refused.names):
        fits = {option for option in known if option == name or (name[-1] == "*" and option.startswith(name[:-1]))}
        assert fits, name
        meant |= fits
    for option in sorted(known - meant):
        check(option)
    for option in sorted(meant):
        with pytest.raises(UsageError):
            check(option)


def test_the_setting_is_a_list_or_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--page-size", "1", "--chat-template", "a b")
    assert load_settings({"sglang_arguments": list(words)}).sglang_arguments == words
    monkeypatch.setenv("TIDE_SGLANG_ARGUMENTS", "--page-size 1 --chat-template 'a b'")
    assert load_settings().sglang_arguments == words
    monkeypatch.setenv("TIDE_SGLANG_ARGUMENTS", "'unclosed")
    with pytest.raises(UsageError, match="TIDE_SGLANG_ARGUMENTS"):
        load_settings()
