"""The supervisor's decisions: one pure function from (message, now) to actions, over a small table of children.

    WAITING -> STARTING -> READY -> BACKOFF -> STARTING … -> FATAL          any -> STOPPING -> STOPPED

First the steps that end by themselves (target, draft), then the engine, and the trainer once the engine has given a
token. The engine's end ends neither the trainer nor its cycle; the trainer's never touches the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.lifecycle import Child, RestartPolicy, State
from tide_cli.supervisor.messages import (
    ENGINE,
    TRAINER,
    Action,
    Answered,
    Began,
    CaptureLooked,
    ChooseDraft,
    DraftChosen,
    Exited,
    Finish,
    Kill,
    KillAsked,
    Message,
    Note,
    Probe,
    Serve,
    Spawn,
    StopAsked,
    Swapped,
    Tell,
    Terminate,
    Totals,
    TrainAsked,
    TrainerSaid,
    UseAsked,
)


@dataclass(frozen=True)
class Limits:
    """Seconds, all of them of the monotonic clock."""

    start_timeout: float
    stop_timeout: float
    policy: RestartPolicy = field(default_factory=RestartPolicy)


class Core:
    """steps: children that run once, in order, before the engine; trains: whether there is a trainer."""

    def __init__(self, steps: Sequence[str], trains: bool, limits: Limits, learning: Learning) -> None:
        self.limits = limits
        self.learning = learning
        self.steps = list(steps)
        self.children = {name: Child(name) for name in [*steps, ENGINE, *([TRAINER] if trains else [])]}
        self.stopping = False
        self.finished = False
        self.exit_code = 0
        self.reason: str | None = None
        self.capture_failure: str | None = None
        self._trainer_terminate_at: float | None = None
        self._step_running: str | None = None

    @property
    def state(self) -> State:
        """Of the appliance as a whole."""
        engine = self.children[ENGINE]
        if self.finished:
            return State.FATAL if self.exit_code else State.STOPPED
        if self.stopping:
            return State.STOPPING
        return State.PREPARING if engine.state is State.WAITING else engine.state

    def next_deadline(self) -> float | None:
        """The monotonic second at which a Tick is due, None where nothing is awaited."""
        times = [child.deadline for child in self.children.values() if child.deadline is not None]
        times += [self._trainer_terminate_at] if self._trainer_terminate_at is not None else []
        return min(times, default=None)

    def handle(self, message: Message, now: float) -> list[Action]:
        """What to do about one message. After Finish nothing more is decided."""
        if self.finished:
            return []
        actions = self._react(message, now) + self._deadlines(now)
        if self.stopping:
            return actions + self._finish_if_empty()
        return actions + self.learning.pursue(self._ready_engine(), self._trainer_state() is State.READY)

    def _react(self, message: Message, now: float) -> list[Action]:
        match message:
            case Began():
                return self._next_step(now)
            case Exited():
                return self._exited(message, now)
            case StopAsked(by):
                return self._stop(now, Note("stop", f"stopping: {by}"))
            case KillAsked():
                killed = [Kill(child.name) for child in self.children.values() if child.alive]
                return self._stop(now, Note("stop", "stopping at once")) + killed
            case DraftChosen():
                return self._draft_chosen(message, now)
            case Answered(generation):
                return self._engine_ready(generation, now)
            case Totals(values):
                self.learning.totals = values
            case CaptureLooked(failure):
                return self._capture_looked(failure)
            case TrainerSaid():
                return self._trainer_said(message, now)
            case Swapped():
                return self.learning.swapped(message, self._ready_engine())
            case TrainAsked():
                return self.learning.train_asked(message, self._why_no_training())
            case UseAsked():
                return self.learning.use_asked(message, self._ready_engine() is not None)
        return []

    # --- the way up

    def _next_step(self, now: float) -> list[Action]:
        if not self.steps:
            return [ChooseDraft()]
        self._step_running = self.steps.pop(0)
        return self._start(self._step_running, now)

    def _draft_chosen(self, message: DraftChosen, now: float) -> list[Action]:
        if self.stopping:
            return []
        if message.error is not None:
            return self._fatal(message.error, now)
        self.learning.served = message.version
        return self._start(ENGINE, now)

    def _engine_ready(self, generation: int, now: float) -> list[Action]:
        engine = self.children[ENGINE]
        if engine.state is not State.STARTING or engine.generation != generation:
            return []
        seconds = now - engine.since
        engine.ready(now)
        actions: list[Action] = [
            Note("ready", f"the engine is ready after {seconds:.0f} s", {"seconds": round(seconds, 3)})
        ]
        if self.learning.served is not None:
            actions.append(Serve(self.learning.served))
        if self._trainer_state() is State.WAITING:
            actions += self._start(TRAINER, now)
        return actions

    def _start(self, name: str, now: float) -> list[Action]:
        child = self.children[name]
        # a step may download or convert for as long as it takes; engine and trainer must become ready in time
        child.starting(now, self.limits.start_timeout if name in (ENGINE, TRAINER) else None)
        spawn = Spawn(name, child.generation)
        return [spawn, Probe(child.generation)] if name == ENGINE else [spawn]

    # --- news of the children

    def _exited(self, message: Exited, now: float) -> list[Action]:
        child = self.children[message.child]
        if child.generation != message.generation or not child.alive:
            return []
        if self.stopping:
            child.stopped(now)
            return [Note("exited", f"{child.name} ended", {"code": message.code})]
        if child.name == self._step_running:
            return self._step_ended(child, message, now)
        reason = child.reason if child.state is State.STOPPING and child.reason else _words(message)
        child.failed(now, reason, self.limits.policy)
        actions = self.learning.engine_gone() if child.name == ENGINE else self.learning.trainer_gone()
        actions.append(Note("exited", f"{child.name} ended: {reason}", {"code": message.code}))
        if child.state is State.BACKOFF:
            wait = self.limits.policy.delay(child.failures)
            return [
                *actions,
                Note("backoff", f"{child.name} starts again in {wait:.0f} s", {"failures": child.failures}),
            ]
        if child.name == ENGINE:
            return actions + self._fatal(f"the engine ended {child.failures} times in a row: {reason}", now)
        text = f"training is given up, serving goes on: the trainer ended {child.failures} times in a row"
        return [*actions, Note("trainer_fatal", text, {"failures": child.failures})]

    def _step_ended(self, child: Child, message: Exited, now: float) -> list[Action]:
        self._step_running = None
        child.stopped(now)
        if message.code:
            return self._fatal(message.last_words or f"preparing the {child.name} failed: {_words(message)}", now)
        return self._next_step(now)

    def _trainer_said(self, message: TrainerSaid, now: float) -> list[Action]:
        trainer = self.children[TRAINER]
        if message.generation != trainer.generation or not trainer.alive:
            return []
        if message.event.get("event") != "ready":
            return self.learning.trainer_said(message.event)
        if trainer.state is not State.STARTING:
            return []
        trainer.ready(now)
        return [Note("trainer_ready", "the trainer is ready", message.event)]

    def _capture_looked(self, failure: str | None) -> list[Action]:
        known, self.capture_failure = self.capture_failure, failure
        if failure is None or failure == known:
            return []
        return [Note("capture_stopped", f"capture has stopped, serving goes on: {failure}")]

    # --- time

    def _deadlines(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self._trainer_terminate_at is not None and now >= self._trainer_terminate_at:
            self._trainer_terminate_at = None
            actions.append(Terminate(TRAINER))
        for child in self.children.values():
            if child.deadline is None or now < child.deadline:
                continue
            if child.state is State.BACKOFF:
                actions += self._start(child.name, now)
            elif child.state is State.STARTING:
                child.reason = f"not ready within {self.limits.start_timeout:.0f} s"
                child.stopping(now, self.limits.stop_timeout)
                actions.append(Terminate(child.name))
            elif child.state is State.STOPPING:
                child.deadline = None
                actions.append(Kill(child.name))
        return actions

    # --- the way down

    def _fatal(self, reason: str, now: float) -> list[Action]:
        self.exit_code, self.reason = 1, reason
        return self._stop(now, Note("fatal", reason))

    def _stop(self, now: float, note: Note) -> list[Action]:
        if self.stopping:
            return []
        self.stopping = True
        actions: list[Action] = [note]
        for child in self.children.values():
            if not child.alive:
                if child.state is State.BACKOFF:
                    child.stopped(now)
                continue
            if child.name == TRAINER and child.state is State.READY:
                # a trainer in the middle of a step saves its state when it is asked kindly
                actions.append(Tell({"cmd": "stop"}))
                self._trainer_terminate_at = now + self.limits.stop_timeout / 4
            else:
                actions.append(Terminate(child.name))
            child.stopping(now, self.limits.stop_timeout)
        return actions

    def _finish_if_empty(self) -> list[Action]:
        if any(child.alive for child in self.children.values()):
            return []
        self.finished = True
        return [Finish(self.exit_code)]

    # --- small questions

    def _ready_engine(self) -> int | None:
        engine = self.children[ENGINE]
        return engine.generation if engine.state is State.READY else None

    def _trainer_state(self) -> State | None:
        trainer = self.children.get(TRAINER)
        return trainer.state if trainer else None

    def _why_no_training(self) -> str | None:
        """Why no cycle can begin now, in words; None where one can."""
        trainer = self.children.get(TRAINER)
        if trainer is None:
            return "training is off on this appliance"
        if trainer.state is State.FATAL:
            return (
                f"the trainer has been given up ({trainer.reason}); `tide logs trainer`, then `tide down` and `tide up`"
            )
        if trainer.state is not State.READY:
            return f"the trainer is not ready ({trainer.state}); try again when `tide ps` says READY"
        if self._ready_engine() is None:
            return f"the engine is not ready ({self.children[ENGINE].state}); try again when `tide ps` says READY"
        return None


def _words(message: Exited) -> str:
    how = f"signal {-message.code}" if message.code < 0 else f"exit code {message.code}"
    return f"{message.last_words} ({how})" if message.last_words else how
