"""How the end of a child is spoken of."""

from __future__ import annotations

import signal

import pytest

from tide_cli.supervisor.causes import explain
from tide_cli.supervisor.endings import exit_words
from tide_cli.supervisor.messages import ENGINE, Exited


@pytest.mark.parametrize(
    ("code", "last_words", "words"),
    [
        (-signal.SIGKILL, "it was killed from outside (SIGKILL)", "it was killed from outside (SIGKILL)"),
        (-signal.SIGKILL, "AssertionError: f()", "AssertionError: f() (SIGKILL)"),
        (-40, "", "signal 40"),
        (2, "wrong arguments\nmend them", "wrong arguments (exit code 2)\nmend them"),
        (1, "", "exit code 1"),
    ],
)
def test_last_words_and_the_code_once(code: int, last_words: str, words: str) -> None:
    assert exit_words(Exited(ENGINE, 1, code, last_words)) == words


def test_a_signal_is_named_once() -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        said = exit_words(Exited(ENGINE, 1, -number, explain("", -number, ENGINE).words))
        assert said.count(number.name) == 1
        assert "signal" not in said
