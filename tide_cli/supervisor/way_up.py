"""How an appliance comes up: the steps that end by themselves, the engine, the trainer. Pure: it changes the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tide_cli.engine.phases import phase_words
from tide_cli.supervisor.lifecycle import Child, Limits, State
from tide_cli.supervisor.messages import ENGINE, TRAINER, Action, ChooseDraft, Note, Probe, Serve, Spawn


class WayUp:
    """steps: children that run once, in order, before the engine; running: the present one, None before and after."""

    def __init__(self, steps: Sequence[str], children: Mapping[str, Child], limits: Limits) -> None:
        self.running: str | None = None
        self._left = list(steps)
        self._children = children
        self._limits = limits
        self._prepared: dict[str, float] = {}  # seconds of the steps before the engine's first start

    def start(self, name: str, now: float) -> list[Action]:
        """A child begins, for the first time or anew."""
        child = self._children[name]
        # a step may download or convert for as long as it takes; engine and trainer must become ready in time
        child.starting(now, self._limits.start_timeout if name in (ENGINE, TRAINER) else None)
        spawn = Spawn(name, child.generation)
        return [spawn, Probe(child.generation)] if name == ENGINE else [spawn]

    def next_step(self, now: float) -> list[Action]:
        """The next of the steps; the draft to serve, where none is left."""
        if not self._left:
            return [ChooseDraft()]
        self.running = self._left.pop(0)
        return self.start(self.running, now)

    def step_ended(self, child: Child, now: float) -> None:
        """The running step's process is gone, whatever it has done."""
        self.running = None
        self._prepared[child.name] = round(now - child.since, 1)
        child.done(now)

    def engine_ready(
        self, generation: int, phases: Mapping[str, float], served: int | None, now: float
    ) -> list[Action]:
        """The engine has given a token. served: the version it was started with."""
        engine = self._children[ENGINE]
        if engine.state is not State.STARTING or engine.generation != generation:
            return []
        seconds = now - engine.since
        engine.ready(now)
        words = phase_words(phases)
        text = f"the engine is ready after {seconds:.0f} s" + (f" ({words})" if words else "")
        data = {"seconds": round(seconds, 3), "phases": {**self._prepared, **phases}, "version": served}
        self._prepared = {}
        actions: list[Action] = [Note("ready", text, data)]
        if served is not None:
            actions.append(Serve(served))
        trainer = self._children.get(TRAINER)
        if trainer and trainer.state is State.WAITING:
            actions += self.start(TRAINER, now)
        return actions
