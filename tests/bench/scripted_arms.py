"""Stand-ins for the engines of `tide bench capture`, `swap` and `profile`; they note what they are asked, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tide_cli.bench.client import Answer
from tide_cli.bench.progress import Progress
from tide_cli.bench.requests import Request
from tide_cli.errors import TideError

TOKENS = 11


class Told(Progress):
    """lines and ticks, in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def say(self, text: str) -> None:
        self.all.append(text)

    def tick(self, done: float, total: float) -> None:
        self.all.append((done, total))

    @property
    def ticks(self) -> list[tuple[float, float]]:
        return [one for one in self.all if isinstance(one, tuple)]


class Engines(dict[str, Any]):
    """By name, as `warm_engines` yields them."""

    def __init__(self, world: World, names: Sequence[str]) -> None:
        super().__init__({name: Engine(name, world) for name in names})

    def stored(self, name: str) -> dict[str, int]:
        return dict(self[name].status()["spool"])


class Engine:
    def __init__(self, name: str, world: World) -> None:
        self.name, self._world = name, world
        self.settings = SimpleNamespace(paths=SimpleNamespace(drafts=world.drafts))
        self.engine = SimpleNamespace(measure=lambda: world.profile, set_state=self._set_state)
        self.steps: int | None = None

    def _set_state(self, *, tide_steps: int) -> None:
        self.steps = tide_steps
        self._world.journal.append(("steps", tide_steps))

    def flush_cache(self) -> None:
        self._world.journal.append(("flush", self.name))

    def status(self) -> dict[str, Any]:
        return {"spool": {"tokens": 40, "dropped_full": 2, "dropped_short": 1}}

    def use_draft(self, version: int) -> None:
        if self._world.refusing and threading.current_thread() is not threading.main_thread():
            self._world.tried.set()
            raise TideError("the draft cannot be loaded")
        self._world.journal.append(("use", version))
        if threading.current_thread() is not threading.main_thread():
            self._world.swapped += 1
            self._world.tried.set()


class World:
    """journal: what was asked of the engines. answer: gives request number i of a pass its text and error.

    every_ms: between two tokens of an engine, by name and number of steps. drafts: the folder of a draft store.
    """

    def __init__(self, drafts: Path) -> None:
        self.drafts = drafts
        self.journal: list[tuple[Any, ...]] = []
        self.own: dict[str, Any] = {}
        self.common: dict[str, Any] = {}
        self.profile: dict[str, Any] = {}
        self.every_ms: Callable[[Engine], float] = lambda engine: 100.0
        self.answer: Callable[[Engine, int], tuple[str, str | None]] = lambda engine, place: (f"text {place}", None)
        self.refusing = False
        self.swapped = 0
        self.tried = threading.Event()
        self.swaps_in_a_pass = 0

    @contextmanager
    def warm_engines(self, wanted: Mapping[str, Any], common: Mapping[str, Any], *_: object) -> Iterator[Engines]:
        self.own, self.common = dict(wanted), dict(common)
        self.journal.append(("up", *wanted))
        yield Engines(self, list(wanted))
        self.journal.append(("down", *wanted))

    def send(
        self,
        engine: Engine,
        requests: Sequence[Request],
        concurrency: int,
        *,
        captured: bool,
        on_answer: Callable[[Answer], None],
    ) -> list[Answer]:
        """Every request begins now and has a token each so many milliseconds. Where swaps are to come meanwhile, the
        pass lasts until they have."""
        self.journal.append(("send", engine.name, len(requests), concurrency, captured))
        begun = time.monotonic()
        swapping = any(thread.name == "swaps" for thread in threading.enumerate())
        self.tried.clear()  # what was before this pass does not count
        for _ in range(self.swaps_in_a_pass if swapping else 0):
            assert self.tried.wait(30)
            self.tried.clear()
        later = max(time.monotonic(), begun + 1e-3) if swapping else begun
        every = self.every_ms(engine) / 1e3
        moments = [begun, *(later + every * i for i in range(1, TOKENS))]
        answers = []
        for place, request in enumerate(requests):
            text, error = self.answer(engine, place)
            steps = None if engine.steps == 0 else 4
            answers.append(
                Answer(request, begun, moments[0], moments[-1], tuple(moments), 5, TOKENS, steps, text, error)
            )
            on_answer(answers[-1])
        return answers

    def sent(self) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.journal if entry[0] == "send"]


def stand_in(monkeypatch: pytest.MonkeyPatch, drafts: Path) -> World:
    """The benches meet this world instead of engines."""
    made = World(drafts)
    for part in ("capture", "swap", "profile"):
        monkeypatch.setattr(f"tide_cli.bench.{part}.warm_engines", made.warm_engines)
        monkeypatch.setattr(f"tide_cli.bench.{part}.send", made.send)
    return made
