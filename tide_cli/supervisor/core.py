"""The supervisor's decisions: one pure function from (message, now) to actions, over a small table of children.

    WAITING -> STARTING -> READY <-> DEGRADED -> BACKOFF -> STARTING … -> FATAL        any -> STOPPING -> STOPPED

First the steps that end by themselves (target, draft), then the engine, and the trainer once the engine has given a
token. The engine's end ends neither the trainer nor its cycle; the trainer's never touches the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from tide_cli.supervisor.answers import NO_TRAINING, why_no_restart, why_no_training
from tide_cli.supervisor.endings import end, exit_words, give_up, judge_silence, kill_note, stop_note, times_words
from tide_cli.supervisor.learning import Learning
from tide_cli.supervisor.lifecycle import Child, Limits, State
from tide_cli.supervisor.messages import (
    ENGINE,
    TRAINER,
    Action,
    Answer,
    Answered,
    Began,
    Broken,
    CaptureLooked,
    DraftChosen,
    Exited,
    Finish,
    Kill,
    KillAsked,
    MarkBad,
    Message,
    Note,
    Observed,
    PauseAsked,
    Pulse,
    RestartAsked,
    Speculates,
    StopAsked,
    Swapped,
    Terminate,
    Told,
    Totals,
    TrainAsked,
    TrainerSaid,
    UseAsked,
)
from tide_cli.supervisor.speculating import SpeculationNews
from tide_cli.supervisor.way_up import WayUp


class Core:
    """steps: children that run once, in order, before the engine; trains: whether there is a trainer."""

    def __init__(self, steps: Sequence[str], trains: bool, limits: Limits, learning: Learning) -> None:
        self.limits = limits
        self.learning = learning
        self.speculation = SpeculationNews()
        self.children = {name: Child(name) for name in [*steps, ENGINE, *([TRAINER] if trains else [])]}
        self.stopping = False
        self.finished = False
        self.exit_code = 0
        self.reason: str | None = None  # of a failure
        self.excerpt: tuple[str, ...] = ()  # of the log of the child whose end was fatal
        self.stopped_by: str | None = None  # of an end that was asked for
        self.capture_failure: str | None = None
        self._way_up = WayUp(steps, self.children, limits)

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
        times = [time for child in self.children.values() for time in (child.deadline, child.terminate_at)]
        return min((time for time in times if time is not None), default=None)

    def handle(self, message: Message, now: float) -> list[Action]:
        """What to do about one message. After Finish nothing more is decided."""
        if self.finished:
            return []
        actions = self._react(message, now)
        if self.stopping:
            return [*actions, *self._deadlines(now), *self._finish_if_empty()]
        trainer = self.children.get(TRAINER)
        ready = None if trainer is None or trainer.state is State.FATAL else trainer.state is State.READY
        actions += self.learning.pursue(self._ready_engine(), ready, now)
        if trainer is not None and ready:  # a deadline while it has something to do, renewed with all that it says
            trainer.deadline = self.learning.silent_until(self.limits.train_hang_timeout)
        return actions + self._deadlines(now)

    def _react(self, message: Message, now: float) -> list[Action]:
        match message:
            case Began():
                return self._way_up.next_step(now)
            case Exited():
                return self._exited(message, now)
            case StopAsked(by, requests):
                self.stopped_by = by
                return self._stop(now, stop_note(by, requests, self.limits))
            case KillAsked():
                killed: list[Action] = [Kill(child.name) for child in self.children.values() if child.alive]
                note = kill_note(self.children[ENGINE])
                return [note, *killed] if self.stopping else self._stop(now, note) + killed
            case DraftChosen():
                return self._draft_chosen(message, now)
            case Answered(generation, phases):
                return self._way_up.engine_ready(generation, phases, self.learning.served, now)
            case Pulse():
                return self._pulse(message, now)
            case Speculates(generation, state):
                if generation != self._ready_engine():
                    state = None  # of an engine that has ended meanwhile nothing is told
                reported = self.learning.reported(state.get("draft_version") if state else None, now)
                return [*reported, *self.speculation.look(state, now)]
            case Broken():
                return self._broken(message, now)
            case RestartAsked():
                return self._restart_asked(message, now)
            case Totals(values, held_out):
                self.learning.totals, self.learning.held_out = values, held_out
            case Observed(requests):
                return self.learning.observed(requests, now)
            case CaptureLooked(failure):
                return self._capture_looked(failure)
            case TrainerSaid():
                return self._trainer_said(message, now)
            case Swapped():
                if message.error is not None and (self.stopping or self.children[ENGINE].restart):
                    return []  # cut short by an end that was asked for, which says nothing of the version
                return self.learning.swapped(message, now)
            case Told(kind, text, data):
                return [Note(kind, text, data)]
            case TrainAsked():
                return self.learning.train_asked(message, why_no_training(self.children))
            case PauseAsked():
                if not self.trains:
                    return [Answer(message.ticket, False, NO_TRAINING)]
                return self.learning.pause_asked(message)
            case UseAsked():
                return self.learning.serving.use_asked(message, self._ready_engine() is not None)
        return []

    def _draft_chosen(self, message: DraftChosen, now: float) -> list[Action]:
        if self.stopping:
            return []
        if message.error is not None:
            return self._fatal(message.error, now)
        self.learning.serving.starts_with(message.version, message.passed)
        actions = list[Action]()
        if message.taken_back is not None:
            text = f"v{message.taken_back:04d} was taken back and had not left: v{message.version:04d} returns"
            data = {"version": message.taken_back, "previous": message.version}
            # the mark too may have been cut short
            actions = [Note("taken_back", text, data), MarkBad(message.taken_back, message.reason)]
        return [*actions, *self._way_up.start(ENGINE, now)]

    # --- news of the children

    def _exited(self, message: Exited, now: float) -> list[Action]:
        child = self.children[message.child]
        if child.generation != message.generation or not child.alive:
            return []
        if self.stopping:
            child.stopped(now)
            return [Note("exited", f"{child.name} ended", {"code": message.code})]
        if child.restart:
            engine = child.name == ENGINE
            gone = self.learning.engine_gone(now, asked=True) if engine else self.learning.trainer_gone(now)
            return [*gone, *self._way_up.start(child.name, now)]
        if child.name == self._way_up.running:
            return self._step_ended(child, message, now)
        reason = exit_words(message)
        if child.state is State.STOPPING and child.reason:  # ended by us, for a trouble that its log may explain
            reason = f"{child.reason}: {message.last_words}" if message.explained else child.reason
        child.failed(now, reason, self.limits.policy, final=message.final and child.state is State.STARTING)
        actions = self.learning.engine_gone(now) if child.name == ENGINE else self.learning.trainer_gone(now)
        actions.append(Note("exited", f"{child.name} ended: {reason}", {"code": message.code}))
        if child.state is State.BACKOFF:
            wait = self.limits.policy.delay(child.failures)
            return [
                *actions,
                Note("backoff", f"{child.name} starts again in {wait:.0f} s", {"failures": child.failures}),
            ]
        if child.name == ENGINE:
            return actions + self._fatal(f"the engine ended{times_words(child)}: {reason}", now, message.excerpt)
        text = f"training is given up, serving goes on: the trainer ended{times_words(child)}"
        return [*actions, Note("trainer_fatal", text, {"failures": child.failures})]

    def _step_ended(self, child: Child, message: Exited, now: float) -> list[Action]:
        self._way_up.step_ended(child, now)
        if message.code:
            child.stopped(now)
            words = message.last_words or f"preparing the {child.name} failed: {exit_words(message)}"
            return self._fatal(words, now, message.excerpt)
        return self._way_up.next_step(now)

    def _trainer_said(self, message: TrainerSaid, now: float) -> list[Action]:
        trainer = self.children[TRAINER]
        if message.generation != trainer.generation or not trainer.alive:
            return []
        if message.event.get("event") != "ready":
            return self.learning.trainer_said(message.event, now)
        if trainer.state is not State.STARTING:
            return []
        trainer.ready(now)
        return [Note("trainer_ready", "the trainer is ready", message.event)]

    # --- an engine that runs and does not work, and one that shall begin again

    def _pulse(self, message: Pulse, now: float) -> list[Action]:
        engine = self.children[ENGINE]
        if not engine.up or engine.generation != message.generation:
            return []
        return judge_silence(engine, message.silence, self.limits, now)

    def _broken(self, message: Broken, now: float) -> list[Action]:
        child = self.children[message.child]
        if not child.up or child.generation != message.generation:
            return []
        return give_up(child, f"{message.names} ended", self.limits, now)

    def _restart_asked(self, message: RestartAsked, now: float) -> list[Action]:
        if why_not := why_no_restart(self.children, message.children, self.stopping):
            return [Answer(message.ticket, False, why_not)]
        actions: list[Action] = []
        for name in message.children:
            child = self.children[name]
            child.failures = 0
            actions.append(Note("restart", f"{name} is started anew: asked for by the user"))
            if child.alive:
                child.restart = True
                actions += end(child, self.limits, now)
            else:
                actions += self._way_up.start(name, now)
        return [*actions, Answer(message.ticket, True, f"{' and '.join(message.children)} restarting")]

    def _capture_looked(self, failure: str | None) -> list[Action]:
        known, self.capture_failure = self.capture_failure, failure
        if failure is None or failure == known:
            return []
        return [Note("capture_stopped", f"capture has stopped, serving goes on: {failure}")]

    # --- time

    def _deadlines(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for child in self.children.values():
            if child.terminate_at is not None and now >= child.terminate_at:
                child.terminate_at = None
                actions.append(Terminate(child.name))
            if child.deadline is None or now < child.deadline:
                continue
            if child.state is State.BACKOFF:
                actions += self._way_up.start(child.name, now)
            elif child.state is State.STARTING:
                child.reason = f"not ready within {self.limits.start_timeout:.0f} s"
                child.stopping(now, self.limits.stop_timeout)
                actions.append(Terminate(child.name))
            elif child.state is State.READY:
                words = f"not a step in {self.limits.train_hang_timeout:.0f} s (train_hang_timeout)"
                actions += give_up(child, words, self.limits, now)
            elif child.state is State.STOPPING:
                child.deadline = None
                actions += [kill_note(child, self.limits.stop_timeout), Kill(child.name)]
        return actions

    # --- the way down

    def _fatal(self, reason: str, now: float, excerpt: tuple[str, ...] = ()) -> list[Action]:
        self.exit_code, self.reason, self.excerpt = 1, reason, excerpt
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
            actions += end(child, self.limits, now)
        return actions

    def _finish_if_empty(self) -> list[Action]:
        if any(child.alive for child in self.children.values()):
            return []
        self.finished = True
        return [Finish(self.exit_code)]

    # --- small questions

    @property
    def trains(self) -> bool:
        """Whether there is a trainer at all."""
        return TRAINER in self.children

    def versions_in_use(self) -> set[int] | None:
        """Versions of the draft none of which may be removed; None while the trainer tries kept ones, or is about to:
        any of them may be the next. From any thread."""
        trainer = self.children.get(TRAINER)
        tries = trainer is not None and trainer.state is not State.FATAL and self.learning.tries_versions
        return None if tries else self.learning.serving.in_use

    def _ready_engine(self) -> int | None:
        engine = self.children[ENGINE]
        return engine.generation if engine.state is State.READY else None
