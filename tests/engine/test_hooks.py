"""The hooks on one round, in the order in which SGLang calls what they wrap."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tide_cli.engine.plugin.install import _Parts


class Recorder:
    """In place of the capture: copies at once, as the copy on a GPU's stream does."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, list[float]]] = []

    def before_forward(self, batch) -> str | None:
        return batch.name

    def after_forward(self, before, output) -> None:
        self.rows.append((before, output.states.tolist()))


@pytest.fixture
def parts() -> _Parts:
    parts = _Parts(config=None)
    parts.capture = Recorder()
    parts.speculation = SimpleNamespace(
        before_prefill=lambda reqs: None,
        before_decode=lambda reqs: None,
        clock=SimpleNamespace(timed=lambda part, call: call()),
    )
    return parts


def batch(name: str, *, extend: bool) -> SimpleNamespace:
    mode = SimpleNamespace(is_extend=lambda: extend)
    return SimpleNamespace(name=name, forward_mode=mode, is_extend_in_batch=False, reqs=[], spec_info=None)


def round_of(parts: _Parts, target: torch.Tensor):
    """A decode round of SGLang's: verify, then the draft's graph, which may write where the target's outputs lie."""

    def forward(worker, batch):
        output = parts.around_verify(lambda worker, batch: SimpleNamespace(states=target), worker, batch)
        target.fill_(-1.0)
        return output

    return forward


def test_a_rounds_states_are_taken_before_the_draft_goes_on(parts: _Parts) -> None:
    parts.around_forward(round_of(parts, torch.tensor([1.0, 2.0])), None, batch("first", extend=False))
    parts.around_forward(round_of(parts, torch.tensor([3.0, 4.0])), None, batch("second", extend=False))
    assert parts.capture.rows == [("first", [1.0, 2.0]), ("second", [3.0, 4.0])]


def test_a_prefills_states_are_taken_once(parts: _Parts) -> None:
    output = SimpleNamespace(states=torch.tensor([5.0]))
    assert parts.around_forward(lambda worker, batch: output, None, batch("prompt", extend=True)) is output
    assert parts.capture.rows == [("prompt", [5.0])]


def test_a_round_that_is_not_captured_takes_nothing(parts: _Parts) -> None:
    parts.around_forward(round_of(parts, torch.tensor([1.0])), None, batch(None, extend=False))
    assert parts.capture.rows == []
