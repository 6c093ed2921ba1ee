"""Signals interrupt where that is allowed, and are only counted elsewhere."""

from __future__ import annotations

import os
import signal

import pytest

from tide_cli.bench.interrupts import Interrupts

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def arrive(number: signal.Signals) -> None:
    """Returns when the handler has run: Python runs it before the next instruction of the main thread."""
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_allowed_block_is_interrupted(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            arrive(number)
        assert interrupts.count == 1


@pytest.mark.parametrize("number", NUMBERS)
def test_what_comes_before_interrupts_at_the_beginning(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        arrive(number)
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            raise AssertionError("the block began")


def test_cleaning_up_is_never_interrupted() -> None:
    steps = []
    with Interrupts() as interrupts:
        try:
            with interrupts.allowed():
                arrive(signal.SIGINT)
        except KeyboardInterrupt:
            arrive(signal.SIGINT)
            steps.append("cleaned")
    assert steps == ["cleaned"]
    assert interrupts.count == 2


def test_the_handlers_of_before_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts, interrupts.allowed():
            arrive(signal.SIGHUP)
        assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)
