"""The self-check of SGLang's names, against the installed SGLang and against copies in which a name has moved."""

from __future__ import annotations

import pkgutil

import pytest

from tide_cli.engine import hook_points
from tide_cli.engine.hook_points import CPU, SPECULATION, problems

ALL = SPECULATION + CPU


def test_the_installed_sglang_is_as_expected() -> None:
    assert problems(ALL) == []


@pytest.mark.parametrize("moved", ALL, ids=lambda point: point.target.rpartition(".")[2])
def test_a_moved_name_is_named_with_its_purpose(moved: hook_points.HookPoint) -> None:
    def resolve(target: str) -> object:
        if target == moved.target:
            raise AttributeError("gone")
        return pkgutil.resolve_name(target)

    (line,) = problems(ALL, resolve)
    assert moved.target in line
    assert moved.purpose in line


def test_a_changed_signature_is_named() -> None:
    point = hook_points.WORKER_FORWARD

    def changed(self, requests): ...

    (line,) = problems([point], lambda target: changed)
    assert "(self, requests)" in line
    assert "batch" in line


def test_parameters_in_another_order_are_a_problem() -> None:
    assert problems([hook_points.RESULT_DECODE], lambda target: lambda self, result, batch: None)


def test_more_parameters_than_needed_are_none() -> None:
    assert problems([hook_points.RESULT_DECODE], lambda target: lambda self, batch, result, extra=None: None) == []
