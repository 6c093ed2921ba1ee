"""What the event loop can hear (messages) and what it can decide (actions). Plain values, nothing else.

Every thread of the supervisor puts messages on one queue; the core answers each with actions. `generation` counts
the starts of a child, so that news of a start that is already history can be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tide_cli.telemetry.totals import ServedRequest

TARGET, DRAFT, ENGINE, TRAINER = "target", "draft", "engine", "trainer"
CANCELLED = "cancelled"  # the reason that training/cycle.py gives where a command has ended a cycle


@dataclass(frozen=True)
class Began:
    """The supervisor holds the lock and its sockets: start the children."""


@dataclass(frozen=True)
class Tick:
    """Nothing happened but time."""


@dataclass(frozen=True)
class Exited:
    """A child ended and its process group is empty. code as subprocess gives it: negative for a signal.

    explained: last_words are a known cause that its log tells; final: a start that ends so would end so again;
    excerpt: the last lines of its log.
    """

    child: str
    generation: int
    code: int
    last_words: str = ""
    explained: bool = False
    final: bool = False
    excerpt: tuple[str, ...] = ()


@dataclass(frozen=True)
class Passed:
    """A version that has passed the gate against the served one, and shall follow it.

    gate: its figures; refusals: by the engine so far, or its ends meanwhile; after: the monotonic second from which on
    it is asked for.
    """

    version: int
    gate: Mapping[str, Any] | None = None
    refusals: int = 0
    after: float = 0.0


@dataclass(frozen=True)
class DraftChosen:
    """The version to start with (None: no speculation), or the reason why there is none.

    passed: one that has passed the gate against that one, and was never served. taken_back: the one served last, where
    it was to be taken back for `reason` and this is the one before it.
    """

    version: int | None
    error: str | None = None
    passed: Passed | None = None
    taken_back: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Answered:
    """The engine gave a real token. phases: seconds of each phase of its start, as engine.phases names them."""

    generation: int
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Pulse:
    """How long a READY engine has given no token to anybody, a question of ours included; seconds."""

    generation: int
    silence: float


@dataclass(frozen=True)
class Speculates:
    """What the plugin reports of the speculation policy; None where the engine decodes without a draft."""

    generation: int
    state: Mapping[str, Any] | None


@dataclass(frozen=True)
class Broken:
    """Processes of a running child are gone that it cannot do without; names: which, in words."""

    child: str
    generation: int
    names: str


@dataclass(frozen=True)
class TrainerSaid:
    """One event of the trainer, as it came over its pipe."""

    generation: int
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Totals:
    """The spool's counters, monotonic over the spool's life. held_out: samples in it now that no draft is trained on,
    as many as are asked for at most; None: not known."""

    values: Mapping[str, int]
    held_out: int | None = None


@dataclass(frozen=True)
class Observed:
    """Requests that have ended since the last look, oldest first."""

    requests: tuple[ServedRequest, ...]


@dataclass(frozen=True)
class CaptureLooked:
    """Whether the engine still stores the traffic: None, or the reason why it has stopped."""

    failure: str | None


@dataclass(frozen=True)
class Swapped:
    """The engine confirmed a swap, or refused it with a reason."""

    version: int
    generation: int
    error: str | None = None


@dataclass(frozen=True)
class Told:
    """Something beside the children has been done, or has gone wrong and goes on without; an event of this kind."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StopAsked:
    """End everything in order. by: who asked, in words; requests: that run or wait, None where that is not known."""

    by: str
    requests: int | None = None


@dataclass(frozen=True)
class KillAsked:
    """End everything at once."""


@dataclass(frozen=True)
class TrainAsked:
    """`tide train now`; the answer goes to the ticket's holder."""

    ticket: int


@dataclass(frozen=True)
class PauseAsked:
    """`tide train pause` and `tide train resume`."""

    ticket: int
    pause: bool


@dataclass(frozen=True)
class UseAsked:
    """`tide drafts use`; the answer comes after the engine's."""

    ticket: int
    version: int


@dataclass(frozen=True)
class RestartAsked:
    """`tide restart`; the answer says that it has begun."""

    ticket: int
    children: tuple[str, ...]


Message = (
    Began | Tick | Exited | DraftChosen | Answered | Pulse | Speculates | Broken | TrainerSaid | Totals | Observed
    | CaptureLooked | Swapped | Told | StopAsked | KillAsked | TrainAsked | PauseAsked | UseAsked | RestartAsked
)  # fmt: skip


@dataclass(frozen=True)
class Spawn:
    child: str
    generation: int


@dataclass(frozen=True)
class ChooseDraft:
    """The draft store is filled: find the version to start with."""


@dataclass(frozen=True)
class Probe:
    """Ask the engine for tokens until it gives one."""

    generation: int


@dataclass(frozen=True)
class Tell:
    """Send a command to the trainer."""

    command: Mapping[str, Any]


@dataclass(frozen=True)
class Terminate:
    child: str


@dataclass(frozen=True)
class Kill:
    child: str


@dataclass(frozen=True)
class Swap:
    version: int
    generation: int


@dataclass(frozen=True)
class Serve:
    """The engine has confirmed: this version is the served one from now on."""

    version: int


@dataclass(frozen=True)
class MarkBad:
    """Note in the draft store that a version was taken back."""

    version: int
    reason: str


@dataclass(frozen=True)
class Note:
    """One row of the events table."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """To the holder of a ticket."""

    ticket: int
    ok: bool
    text: str


@dataclass(frozen=True)
class Finish:
    """Nothing is running any more."""

    code: int


Action = (
    Spawn | ChooseDraft | Probe | Tell | Terminate | Kill | Swap | Serve | MarkBad | Note | Answer | Finish
)  # fmt: skip
